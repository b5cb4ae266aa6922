//! `kvtide replay --dry-run`: metadata only, through the core.

use crate::error::CliError;
use crate::progress;
use crate::replay::{Capacity, Job, POLICY};
use crate::report::Subject;
use crate::report::dry::DryReplay;
use kvtide::replay::{CoreCache, dry_run};

/// Replays a job at each of its capacities.
pub(crate) fn replay(job: Job) -> Result<DryReplay, CliError> {
    let subject = Subject::new(job.source, POLICY, &job.trace);
    let mut replay = DryReplay { subject, capacities: Vec::new() };
    let source = &replay.subject.source;
    let block_uses = job.trace.block_use_count() * job.capacities.len() as u64;
    let bar = progress::replaying(source.short_name(), block_uses);
    for Capacity { percent, chunks } in job.capacities {
        let report = dry_run(&job.trace, chunks, CoreCache::new, |uses| bar.inc(uses));
        let report = report
            .map_err(|error| CliError::Cache { name: source.name(), source: error.into() })?;
        replay.capacities.push((percent, report));
    }
    Ok(replay)
}
