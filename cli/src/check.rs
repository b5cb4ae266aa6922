//! `kvtide check`: whether disk stores are what they should be, and making them so.
//!
//! Store by store: `check_slots.rs` looks at headers and payloads, `check_repair.rs` mends. A store
//! is locked from the first look at it to the last, so that nobody changes it meanwhile.

use crate::check_repair::{Mending, mend};
use crate::check_slots::{Checked, check_slots};
use crate::error::CliError;
use crate::replay::print;
use crate::report;
use crate::store_args::CheckArguments;
use crate::stores::{Target, name};
use kvtide::io::Disk;
use kvtide::key::Key;
use kvtide::store::{Access, FoundStore, ScanReason, Standing, Store, StoreError, Survey};
use kvtide::units::SlotIndex;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a store in use is waited for: the process that has it may just have been killed.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Instances of each kind of damage that are told one by one.
const FIRST_COUNT: usize = 5;

/// A kind of damage, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A copy of the superblock, or both.
    Superblock,
    /// The store, or a file of it, is of another store.
    Foreign,
    /// The index that a closed store left.
    Index,
    /// A file that is too short.
    Length,
    /// A slot's header page.
    Header,
    /// A chunk's bytes.
    Payload,
    /// What the drive does not give out.
    Unreadable,
}

/// One damaged thing.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// The slot that it is in, if it is in one.
    pub(crate) slot: Option<SlotIndex>,
    /// The chunk that is or was there, if that can be told.
    pub(crate) key: Option<Key>,
    /// What is wrong.
    pub(crate) what: String,
}

/// What of one kind is damaged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damage {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) first: Vec<Instance>,
}

/// What is damaged, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(pub(crate) BTreeMap<Kind, Damage>);

impl Findings {
    /// Adds damage of the whole store.
    pub(crate) fn add(&mut self, kind: Kind, what: String) {
        self.push(kind, Instance { slot: None, key: None, what });
    }

    /// Adds damage of a slot.
    pub(crate) fn add_slot(
        &mut self,
        kind: Kind,
        slot: SlotIndex,
        key: Option<Key>,
        what: &dyn ToString,
    ) {
        self.push(kind, Instance { slot: Some(slot), key, what: what.to_string() });
    }

    fn push(&mut self, kind: Kind, instance: Instance) {
        let damage = self.0.entry(kind).or_default();
        damage.count += 1;
        if damage.first.len() < FIRST_COUNT {
            damage.first.push(instance);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.0.contains_key(&kind)
    }
}

/// How far a store could be checked.
pub(crate) enum Scope {
    /// Whole, unless it is damaged so that nothing in it can be trusted.
    Whole,
    /// Its superblock alone.
    InUse { process: Option<u32> },
    /// Not at all: nothing is in it.
    Unfinished,
    /// Not at all: another version of kvtide wrote it.
    OtherVersion(String),
}

/// What came of one store.
pub(crate) struct StoreCheck {
    /// Its place in the directory that was given.
    pub(crate) name: String,
    pub(crate) found: FoundStore,
    pub(crate) scope: Scope,
    pub(crate) findings: Findings,
    /// What its slots hold, where they were looked at.
    pub(crate) checked: Option<Checked>,
    pub(crate) mending: Mending,
}

/// Runs the command.
pub(crate) fn run(arguments: &CheckArguments) -> Result<(), CliError> {
    let mut target = Target::find(&arguments.directory)?;
    let path = target.directory;
    if target.stores.is_empty() {
        return Err(CliError::NoStore { path });
    }
    let mut checks = Vec::new();
    for found in target.stores {
        let name = name(&found, &path);
        checks.push(check(&mut *target.disk, found, name, arguments)?);
    }
    refuse_in_use(&checks)?;
    let json = || report::check::json(arguments, &checks);
    let text = || report::check::text(&path, &checks);
    print(&if arguments.json { json()? } else { text() })?;
    let damaged: Vec<_> = checks.iter().filter(|check| !check.findings.is_empty()).collect();
    if damaged.is_empty() {
        return Ok(());
    }
    let remedy = match arguments.repair {
        false => "`kvtide check --repair` repairs what can be repaired",
        true if damaged.iter().all(|check| check.mending.is_whole()) => "all were repaired",
        true => "not all could be repaired, see above",
    };
    let (damaged_count, store_count) = (damaged.len(), checks.len());
    Err(CliError::Damaged { path, damaged_count, store_count, remedy })
}

/// Refuses a directory of which nothing could be checked, because all of it is in use.
fn refuse_in_use(checks: &[StoreCheck]) -> Result<(), CliError> {
    let mut first = None;
    for StoreCheck { scope, found, findings, .. } in checks {
        match scope {
            Scope::InUse { process } if findings.is_empty() => {
                first.get_or_insert((found.directory.clone(), *process));
            }
            _ => return Ok(()),
        }
    }
    first.map_or(Ok(()), |(path, process)| Err(CliError::InUse { path, process }))
}

fn check(
    disk: &mut dyn Disk,
    found: FoundStore,
    name: String,
    arguments: &CheckArguments,
) -> Result<StoreCheck, CliError> {
    let access = if arguments.repair { Access::Repair } else { Access::Read };
    let mut check = StoreCheck {
        name,
        found,
        scope: Scope::Whole,
        findings: Findings::default(),
        checked: None,
        mending: Mending::default(),
    };
    match Store::examine(disk, &check.found, access, LOCK_WAIT) {
        Ok((survey, store)) => {
            check.look_at(&survey);
            match store {
                Some(store) => check.check_store(disk, &survey, store, arguments),
                None => check.leave(arguments),
            }
        }
        Err(error @ StoreError::Locked { .. }) => return Err(error.into()),
        Err(error) => {
            check.findings.add(Kind::Unreadable, error.to_string());
            check.leave(arguments);
        }
    }
    Ok(check)
}

impl StoreCheck {
    /// Takes over what can be told without looking at slots.
    fn look_at(&mut self, survey: &Survey) {
        if let Some(holder) = survey.held_by {
            self.scope = Scope::InUse { process: holder.process };
        }
        let findings = &mut self.findings;
        match &survey.standing {
            Standing::Unfinished => self.scope = Scope::Unfinished,
            Standing::Refused(error @ StoreError::Version { .. }) => {
                self.scope = Scope::OtherVersion(error.to_string());
            }
            Standing::Refused(error @ StoreError::SuperblockDamaged { .. }) => {
                findings.add(Kind::Superblock, error.to_string());
            }
            Standing::Refused(error @ StoreError::Io { .. }) => {
                findings.add(Kind::Unreadable, error.to_string());
            }
            Standing::Refused(error) => findings.add(Kind::Foreign, error.to_string()),
            Standing::Clean(_) | Standing::ScanNeeded(_) => look_at_copies(survey, findings),
        }
        if survey.held_by.is_some() {
            return;
        }
        let missing = survey.data_missing.get();
        let is_clean = survey.superblock.current().is_ok_and(|superblock| superblock.is_clean);
        match &survey.standing {
            Standing::ScanNeeded(_) if missing > 0 => {
                findings.add(Kind::Length, format!("data ends {missing} bytes early"));
            }
            // Nobody would read the index of a store that was not closed.
            Standing::ScanNeeded(_) if !is_clean => {}
            Standing::ScanNeeded(ScanReason::Cut) => {
                findings.add(Kind::Index, "index ends early".to_owned());
            }
            Standing::ScanNeeded(reason) => findings.add(Kind::Index, reason.to_string()),
            Standing::Clean(_) | Standing::Unfinished | Standing::Refused(_) => {}
        }
    }

    /// Says why damage stays, where a repair was asked for.
    fn leave(&mut self, arguments: &CheckArguments) {
        if arguments.repair && !self.findings.is_empty() {
            self.mending = Mending::refused(match self.scope {
                Scope::InUse { .. } => "it is in use; repair it when that process has ended",
                _ => "nothing in it can be trusted, so it was not touched",
            });
        }
    }

    /// Checks the slots of a locked store, and mends it if asked to.
    fn check_store(
        &mut self,
        disk: &mut dyn Disk,
        survey: &Survey,
        mut store: Store,
        arguments: &CheckArguments,
    ) {
        let (name, payload) = (&self.name, arguments.payload);
        let checked = check_slots(disk, &mut store, survey, &mut self.findings, (name, payload));
        if arguments.repair && !self.findings.is_empty() {
            self.mending = mend(disk, store, survey, &self.findings, &checked);
        } else {
            store.abandon(disk);
        }
        self.checked = Some(checked);
    }
}

fn look_at_copies(survey: &Survey, findings: &mut Findings) {
    let copies = [(1, &survey.superblock.first), (2, &survey.superblock.second)];
    for (number, copy) in copies {
        if let Err(error) = copy {
            findings.add(Kind::Superblock, format!("copy {number}: {error}"));
        }
    }
}
