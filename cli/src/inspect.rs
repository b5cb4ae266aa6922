//! `kvtide inspect`: what the stores of a root are, read as they lie.

use crate::error::CliError;
use crate::replay::print;
use crate::report;
use crate::store_args::InspectArguments;
use crate::stores::{LOCK_WAIT, Target, name, now_s};
use kvtide::store::{FoundStore, Holder, Standing, StoreError, Survey, survey};

/// One store as it was found.
pub(crate) struct Inspected {
    /// Its place in the directory that was given.
    pub(crate) name: String,
    pub(crate) found: FoundStore,
    pub(crate) state: State,
    /// What it says, where it can be read.
    pub(crate) survey: Option<Survey>,
}

/// What a store is for the next one who opens it.
pub(crate) enum State {
    InUse { process: Option<u32> },
    Clean,
    ToBeScanned(String),
    Unfinished,
    Damaged(String),
    Foreign(String),
    OtherVersion(String),
}

/// Runs the command.
pub(crate) fn run(arguments: &InspectArguments) -> Result<(), CliError> {
    let mut target = Target::find(&arguments.directory)?;
    let mut inspected = Vec::new();
    for found in std::mem::take(&mut target.stores) {
        let name = name(&found, &target.directory);
        let surveyed = survey(&mut *target.disk, &found, LOCK_WAIT);
        let (state, survey) = match surveyed {
            Ok(survey) => (State::of(&survey), Some(survey)),
            Err(error @ StoreError::Locked { .. }) => return Err(error.into()),
            Err(error) => (State::Damaged(error.to_string()), None),
        };
        inspected.push(Inspected { name, found, state, survey });
    }
    let directory = &arguments.directory;
    let json = || report::inspect::json(directory, &inspected, now_s());
    let text = || report::inspect::text(directory, &inspected, now_s());
    print(&if arguments.json { json()? } else { text() })
}

impl State {
    fn of(survey: &Survey) -> Self {
        if let Some(Holder { process }) = survey.held_by {
            return Self::InUse { process };
        }
        match &survey.standing {
            Standing::Clean(_) => Self::Clean,
            Standing::ScanNeeded(reason) => Self::ToBeScanned(reason.to_string()),
            Standing::Unfinished => Self::Unfinished,
            Standing::Refused(error) => Self::refused(error),
        }
    }

    fn refused(error: &StoreError) -> Self {
        let reason = error.to_string();
        match error {
            StoreError::Version { .. } => Self::OtherVersion(reason),
            StoreError::ForeignStore { .. } | StoreError::ForeignFile { .. } => {
                Self::Foreign(reason)
            }
            _ => Self::Damaged(reason),
        }
    }
}
