//! `kvtide gc`: makes a root smaller by removing stores that nobody has.

use crate::error::CliError;
use crate::replay::print;
use crate::report;
use crate::store_args::GcArguments;
use crate::stores::{LOCK_WAIT, Target};
use kvtide::store::{HeldStore, Reclaimed, collect, plan_collection};

/// Runs the command.
pub(crate) fn run(arguments: &GcArguments) -> Result<(), CliError> {
    let mut target = Target::find(&arguments.directory)?;
    if let Some(store) = target.stores.first().filter(|_| target.is_one_store()) {
        let (path, root) = (target.directory.clone(), store.root().to_owned());
        return Err(CliError::NoRoot { path, root });
    }
    let (size, root) = (arguments.size, target.directory);
    let collect = if arguments.dry_run { plan_collection } else { collect };
    let collected = collect(&mut *target.disk, &root, size, LOCK_WAIT)?;
    let json = || report::gc::json(arguments, &root, &collected);
    let text = || report::gc::text(arguments, &root, &collected);
    print(&if arguments.json { json()? } else { text() })?;
    let Reclaimed { held, left, .. } = collected;
    match held.into_iter().next() {
        Some(HeldStore { store, holder }) if left > size => {
            let (held, process) = (store.directory, holder.process);
            Err(CliError::NotCollected { path: root, left, size, held, process })
        }
        _ => Ok(()),
    }
}
