//! `kvtide replay`: real bytes through a pager and a device.

use crate::args::{EngineArguments, WriteWhen};
use crate::error::CliError;
use crate::progress;
use crate::replay::{Capacity, Job, POLICY};
use crate::report::Subject;
use crate::report::bytes::ByteReplay;
use kvtide::pager::DiskStripe;
use kvtide::replay::{ByteReplayError, EngineConfig, EngineDisk, Geometry, Trace, replay_bytes};
use kvtide::units::{BlockCount, ByteCount, ChunkCount, TokenCount};

/// Bytes of a row unless told: what a first look can afford on any machine.
const DEFAULT_ROW_BYTES: u64 = 16;

/// Tokens of a trace block unless told.
const DEFAULT_BLOCK_TOKENS: u32 = 16;

/// Returns what KV a token has, as asked for.
fn geometry(arguments: &EngineArguments) -> Result<Geometry, CliError> {
    let geometry = arguments.geometry.unwrap_or(Geometry::LLAMA_3_8B);
    let default = ByteCount::new(DEFAULT_ROW_BYTES * u64::from(geometry.plane_count()));
    Ok(geometry.scaled_to(arguments.bytes_per_token.unwrap_or(default))?)
}

/// Returns the engine for a trace, with a host tier of one chunk.
fn engine(trace: &Trace, arguments: &EngineArguments) -> Result<EngineConfig, CliError> {
    let geometry = geometry(arguments)?;
    let block_tokens = TokenCount::new(arguments.block_tokens.unwrap_or(DEFAULT_BLOCK_TOKENS));
    let concurrency = arguments.concurrency.unwrap_or(1);
    let longest = trace.longest_request().get();
    let device_blocks = match (arguments.device_blocks, arguments.device_capacity) {
        (Some(blocks), _) => blocks,
        (None, Some(capacity)) => blocks_in(capacity, geometry.block(block_tokens))?,
        (None, None) => BlockCount::new(longest.saturating_mul(concurrency).max(1)),
    };
    let host_chunks = ChunkCount::new(1);
    let disk = None;
    Ok(EngineConfig { geometry, block_tokens, host_chunks, device_blocks, concurrency, disk })
}

/// Returns the engine for a job, its disk tier included.
fn engine_of(job: &Job, arguments: &EngineArguments) -> Result<EngineConfig, CliError> {
    let mut engine = engine(&job.trace, arguments)?;
    if arguments.disk.is_empty() {
        return Ok(engine);
    }
    let sizes = engine.sizes().map_err(CliError::Engine)?;
    let stripes = stripes(job, arguments, sizes.slot)?;
    let write_policy = arguments.write_policy.unwrap_or(WriteWhen::Through).policy();
    let label = job.source.name();
    engine.disk = Some(EngineDisk { stripes, write_policy, label });
    Ok(engine)
}

/// Returns the directories of the disk tier, each with its capacity.
fn stripes(
    job: &Job,
    arguments: &EngineArguments,
    slot: ByteCount,
) -> Result<Vec<DiskStripe>, CliError> {
    let directory_count = arguments.disk.len();
    let capacities = match (arguments.disk_capacity.as_slice(), arguments.disk_percent) {
        ([], percent) => {
            let chunks = percent.map_or(ChunkCount::new(0), |percent| percent.of(&job.trace));
            let of_each = u64::from(chunks.get()).div_ceil(directory_count as u64);
            let of_each = u32::try_from(of_each).expect("a share of a u32");
            vec![EngineDisk::capacity_for(slot, ChunkCount::new(of_each)); directory_count]
        }
        ([capacity], _) => vec![*capacity; directory_count],
        (capacities, _) if capacities.len() == directory_count => capacities.to_vec(),
        (capacities, _) => {
            let capacity_count = capacities.len();
            return Err(CliError::DiskCapacities { capacity_count, directory_count });
        }
    };
    let stripes = arguments.disk.iter().cloned().zip(capacities);
    Ok(stripes.map(|(root, capacity)| DiskStripe::new(root, capacity)).collect())
}

/// Checks that a disk tier is asked for with one trace and one capacity: the first replay would
/// leave it warm for the next.
pub(crate) fn check_disk(jobs: &[Job], arguments: &EngineArguments) -> Result<(), CliError> {
    let replay_count: usize = jobs.iter().map(|job| job.capacities.len()).sum();
    if !arguments.disk.is_empty() && replay_count != 1 {
        return Err(CliError::DiskReplays { replay_count });
    }
    Ok(())
}

fn blocks_in(capacity: ByteCount, block: ByteCount) -> Result<BlockCount, CliError> {
    match u32::try_from(capacity.get() / block.get()) {
        Ok(0) => Err(CliError::LessThanOneBlock { capacity, block }),
        Ok(blocks) => Ok(BlockCount::new(blocks)),
        // Far more than any trace uses; the memory check says so.
        Err(_) => Ok(BlockCount::new(u32::MAX - 1)),
    }
}

/// Returns the capacities that `--host-capacity` asks for.
pub(crate) fn host_capacities(
    trace: &Trace,
    arguments: &EngineArguments,
) -> Result<Vec<Capacity>, CliError> {
    let sizes = engine(trace, arguments)?.sizes().map_err(CliError::Engine)?;
    let chunks = |&capacity: &ByteCount| {
        let slot = sizes.slot;
        let chunks = u32::try_from(capacity.get() / slot.get()).unwrap_or(u32::MAX);
        if chunks == 0 {
            return Err(CliError::LessThanOneSlot { capacity, slot });
        }
        Ok(Capacity { percent: None, chunks: ChunkCount::new(chunks) })
    };
    arguments.host_capacity.iter().map(chunks).collect()
}

/// Checks that a job can be replayed at each of its capacities, before any is.
pub(crate) fn check(job: &Job, arguments: &EngineArguments) -> Result<(), CliError> {
    let engine = engine_of(job, arguments)?;
    for capacity in &job.capacities {
        let config = EngineConfig { host_chunks: capacity.chunks, ..engine.clone() };
        config.check(&job.trace).map_err(|source| refused(job, source))?;
    }
    Ok(())
}

fn refused(job: &Job, source: ByteReplayError) -> CliError {
    CliError::Unfit { name: job.source.name(), source }
}

/// Replays a job at each of its capacities.
pub(crate) fn replay(job: Job, arguments: &EngineArguments) -> Result<ByteReplay, CliError> {
    let engine = engine_of(&job, arguments)?;
    let subject = Subject::new(job.source, POLICY, &job.trace);
    let prefill_rate = arguments.prefill_rate;
    let mut replay =
        ByteReplay { subject, engine: engine.clone(), prefill_rate, capacities: Vec::new() };
    let source = &replay.subject.source;
    let block_uses = job.trace.block_use_count() * job.capacities.len() as u64;
    let bar = progress::replaying(source.short_name(), block_uses);
    for Capacity { percent, chunks } in job.capacities {
        let config = EngineConfig { host_chunks: chunks, ..engine.clone() };
        let report = replay_bytes(&job.trace, &config, |device| device, |uses| bar.inc(uses));
        let report = report
            .map_err(|error| CliError::Cache { name: source.name(), source: error.into() })?;
        replay.capacities.push((percent, report));
    }
    Ok(replay)
}

/// Fails when a byte came back wrong.
pub(crate) fn check_bytes(replays: &[ByteReplay]) -> Result<(), CliError> {
    for replay in replays {
        for (_, report) in &replay.capacities {
            if let Some(first) = report.first_wrong {
                let name = replay.subject.source.name();
                return Err(CliError::WrongBytes { name, count: report.wrong_count, first });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_bytes;
    use crate::error::CliError;
    use crate::report::bytes::ByteReplay;
    use crate::report::{Source, Subject};
    use kvtide::key::Key;
    use kvtide::layout::{PlaneContent, PlaneName};
    use kvtide::replay::{EngineConfig, Geometry, Trace, WrongByte, replay_bytes};
    use kvtide::units::{BlockCount, ChunkCount, TokenCount};

    #[test]
    fn one_wrong_byte_fails_the_program_and_is_named() {
        let line = r#"{"input_length":1,"output_length":1,"hash_ids":[7]}"#;
        let trace = Trace::read(line.as_bytes()).unwrap();
        let engine = EngineConfig {
            geometry: Geometry::DEEPSEEK_V3,
            block_tokens: TokenCount::new(1),
            host_chunks: ChunkCount::new(1),
            device_blocks: BlockCount::new(1),
            concurrency: 1,
            disk: None,
        };
        let report = replay_bytes(&trace, &engine, |device| device, |_| ()).unwrap();
        let subject = Subject::new(Source::Trace("t".to_owned()), "lru", &trace);
        let capacities = vec![(None, report)];
        let mut replays = [ByteReplay { subject, engine, prefill_rate: None, capacities }];
        assert!(check_bytes(&replays).is_ok());
        let report = &mut replays[0].capacities[0].1;
        report.wrong_count = 3;
        report.first_wrong = Some(WrongByte {
            request: 4,
            chunk: 5,
            key: Key::from_u128(0),
            plane: PlaneName { layer: 6, content: PlaneContent::Latent },
            offset: 7,
            expected: 8,
            found: 9,
        });
        let error = check_bytes(&replays).unwrap_err();
        assert_eq!(
            error.to_string(),
            "trace t: 3 blocks came back wrong; the first: request 4, chunk 5 \
             (key 00000000000000000000000000000000), latent of layer 6, offset 7: \
             0x09 instead of 0x08"
        );
        assert!(matches!(error, CliError::WrongBytes { .. }));
        assert_eq!(error.exit_code(), 1);
    }
}
