//! The command line of what looks after disk stores: `inspect`, `check` and `gc`.

use crate::size;
use clap::Args;
use kvtide::units::ByteCount;
use std::path::PathBuf;

const INSPECT_HELP: &str = "\
Examples:
  kvtide inspect /var/cache/kvtide
          Every store under a root, and what they take up together
  kvtide inspect /var/cache/kvtide/0/505152535455565758595a5b5c5d5e5f
          One store
  kvtide inspect --json /var/cache/kvtide | jq '.stores[] | select(.state != \"clean\")'
          Stores that are in use, to be scanned, or damaged

States:
  in use           an engine, or another kvtide, has it
  clean            it was closed: the next open takes its index over
  to be scanned    the next open reads all headers, in the background
  unfinished       its making or removal was interrupted: the next open makes it anew
  damaged          no open takes it
  foreign          it, or a file of it, is of another store: no open takes it
  other version    another version of kvtide wrote it

Nothing is written and no lock is taken away from an engine: stores in use are read as they lie.

JSON (--json) is one object:
  kvtide_version, directory    text; the directory as it was given
  store_count, bytes           of all stores together; bytes of blocks in use
  stores                       one object a store:
    directory                  below the one that was given
    instance, store_id         a number, and text
    state                      in_use, clean, to_be_scanned, unfinished, damaged, foreign,
                               other_version
    reason                     why it is not clean, or null
    process                    who has it, where the system tells, or null
    superblock_damage          what is wrong with one copy of two, or null: the other one counts
    bytes                      of blocks in use
    written_s, age_seconds     when it was last written, since 1970; how long ago
    superblock                 null where none counts, or an object: uuid, format_version, epoch
                               (number of its last run), generation_floor (RUN.WRITE, slots of
                               earlier writes were cleared), slot_bytes, slot_count,
                               used_slot_count (chunks; null where no index tells), group, codec,
                               block_tokens, blocks_per_chunk, part_count

Exit codes: 0 success, 1 the program failed, 2 what it was given is wrong.";

/// Show the stores of a disk tier: what they are, who has them, what they take up
#[derive(Args, Debug)]
#[command(after_help = INSPECT_HELP)]
pub(crate) struct InspectArguments {
    /// The root of a disk tier, or the directory of one store, ROOT/INSTANCE/STORE-ID
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Print one JSON document instead of text; sizes are exact
    #[arg(long)]
    pub(crate) json: bool,
}

const CHECK_HELP: &str = "\
Examples:
  kvtide check /var/cache/kvtide
          Superblocks, indexes and every slot's header of all stores that are not in use
  kvtide check --payload /var/cache/kvtide
          Every byte of every chunk against the sums in its header too
  kvtide check --payload --repair /var/cache/kvtide
          And take what is damaged out of use
  kvtide check --json --list /var/cache/kvtide
          The chunks that a restarted engine would find, by key and slot

What is checked:
  superblock   both copies
  index        of a store that was closed: whole, and what the headers say
  length       whether the files are as long as the superblock says
  header       of every slot
  payload      with --payload: each part of each chunk against its sum
A store that is being checked is in use: an engine that starts meanwhile waits 5 s for it, then
takes or makes another instance. Of a store that an engine has, only the superblock is checked.
A slot that was being written when its process was killed may be torn. That is harmless: what is
damaged is never handed out. It counts as damage all the same.

Repairs (--repair), each only while the store is locked:
  a damaged copy of the superblock is written anew from the good one
  header pages of damaged slots are overwritten with zeros: those chunks are gone
  data that is too short is extended by zeros
  a store whose index is damaged is left to be scanned when it is opened next
A store is not touched if no copy of its superblock is good, or if it is of another store than its
name says, or of another version of kvtide.

JSON (--json) is one object:
  kvtide_version, directory    text; the directory as it was given
  payload, repair              whether they were asked for
  damaged_store_count          stores with damage
  stores                       one object a store:
    directory, instance, store_id
                               as `kvtide inspect` has them
    result                     sound, damaged, in_use, unfinished, other_version
    reason                     what was not checked and why, or null
    process                    who has it, where the system tells, or null
    slots                      null where headers were not checked, or an object: slot_count,
                               resident_chunk_count (valid, and found by the next open),
                               expired_count (valid, but their life is over), older_count (slots
                               with an older write of a chunk that is elsewhere), cleared_count,
                               payload_bytes (checked against sums)
    damage                     one object a kind: kind (superblock, foreign, index, length, header,
                               payload, unreadable), count, first (at most 5 objects: slot, key and
                               what; null where it is of no slot, or the key cannot be told)
    repairs                    what was done, a list of text
    repair_failure             what could not be done, or null
    chunks                     with --list, the resident chunks: key, slot

Exit codes: 0 all that was checked is sound; 1 something is damaged, repaired or not, or the
program failed; 2 what it was given is wrong: no such directory, no store in it, or none that is
not in use.";

/// Check disk stores for damage, and repair them
#[derive(Args, Debug)]
#[command(after_help = CHECK_HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct CheckArguments {
    /// The root of a disk tier, or the directory of one store, ROOT/INSTANCE/STORE-ID
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Also read every payload and compare it with the sums in its header
    #[arg(long)]
    pub(crate) payload: bool,

    /// Take what is damaged out of use, and write damaged copies anew
    #[arg(long)]
    pub(crate) repair: bool,

    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// List each resident chunk in the JSON document
    #[arg(long, requires = "json")]
    pub(crate) list: bool,
}

const GC_HELP: &str = "\
Examples:
  kvtide gc /var/cache/kvtide --size 500GiB
          Remove stores that nobody has, the oldest first, until 500 GiB are left at most
  kvtide gc /var/cache/kvtide --size 500GiB --dry-run
          Show which would go
  kvtide gc /var/cache/kvtide --size 0
          Remove every store that is not in use

The oldest is the one that was written least recently. Engines do the same by themselves when a
store does not fit (`capacity`, `reclaim`); this is for stores of models that nobody serves any
more.

JSON (--json) is one object:
  kvtide_version, directory    text; the directory as it was given
  dry_run                      whether it was a --dry-run
  size_bytes                   what was asked for
  left_bytes                   bytes of blocks that the stores take up now, or would
  is_reached                   whether left_bytes is at most size_bytes
  removed                      one object a store that went, or would: directory, instance,
                               store_id, bytes, written_s
  in_use                       the same of stores that were passed over, and process: who has it,
                               or null

Exit codes: 0 success; 1 stores in use keep the root above --size, or the program failed; 2 what it
was given is wrong.";

/// Remove the oldest idle stores of a disk tier until it takes up no more than a size
#[derive(Args, Debug)]
#[command(after_help = GC_HELP)]
pub(crate) struct GcArguments {
    /// The root of a disk tier
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Bytes that all stores may take up, such as 500GiB; 0 removes all that nobody has
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = target_size)]
    pub(crate) size: ByteCount,

    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print one JSON document instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

fn target_size(text: &str) -> Result<ByteCount, String> {
    if text == "0" { Ok(ByteCount::new(0)) } else { size::parse(text) }
}
