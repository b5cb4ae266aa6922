//! The tables in `docs/roofline.md`: premises, instructions, bounds, fragments, capped launches.

use super::TARGET;
use super::bound::{Bounds, Limit, SPAN_BYTES, Share, Subject};
use super::fragment::{Row, sector_surplus};
use super::hardware::{self, CLOCK_GHZ, LINK_GBPS, device_copy_gbps};
use super::pipe::Pipe;
use super::span::{SpanCode, TRIPS};
use super::warp::Memory;

/// Fragments of the table of bounds: the least for which a goal is set.
const FRAGMENT_BYTES: u32 = 2048;

/// Fragments of the table of fragments; those that 16 does not divide take the 4-byte path.
const FRAGMENTS: [u32; 9] = [65_536, 16_384, 2048, 1152, 656, 256, 132, 64, 16];

/// Thread blocks that a capped launch has.
const CAP: u32 = 16;

/// How many times the link's rate a capped launch must keep.
const LINK_MULTIPLE: f64 = 3.0;

/// Returns all tables.
pub(super) fn render(
    version: &str,
    subjects: &[Subject],
    judge: &SpanCode<'_>,
) -> Result<String, String> {
    let sections = [
        format!("From the machine code of ptxas {version} for {TARGET}, and these premises:\n\n"),
        premises(),
        format!(
            "\nWarp instructions of a trip through the hot loop; {TRIPS} trips are a span:\n\n"
        ),
        instructions(subjects),
        format!(
            "\nBounds for fragments of {FRAGMENT_BYTES} bytes in GB/s of payload, each as if all \
             else were free. A copy inside device memory moves {:.0}:\n\n",
            device_copy_gbps()
        ),
        bounds(subjects),
        format!("\n{}\n", judge_line(judge)?),
        "\nBy fragment, from dense planes; *unpack* is checksum, then scatter:\n\n".to_owned(),
        fragments(subjects)?,
        format!(
            "\nCapped to {CAP} thread blocks, one a multiprocessor, where others keep memory busy \
             (a decode step beside it), and where they do not:\n\n"
        ),
        capped(subjects)?,
    ];
    Ok(sections.concat())
}

/// Returns a table of Markdown.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    format!("{}{rule}{rows}", line(&head))
}

fn premises() -> String {
    let rows = hardware::all().into_iter().map(|figure| {
        let value = figure.value.to_string();
        [figure.what, &value, &figure.basis.to_string(), figure.source].map(str::to_owned).to_vec()
    });
    table(&["premise", "value", "basis", "source"], rows)
}

fn instructions(subjects: &[Subject]) -> String {
    let pipes = Pipe::ALL.map(|(_, name)| name);
    let rows = subjects.iter().map(|subject| {
        let trip = subject.trip.total();
        let rest = subject.rest.total();
        let span = trip * TRIPS + rest;
        let counts = subject.trip.counts().into_iter().chain([trip, rest, span]);
        let [idle, busy] = subject.lone_cycles;
        let lone = format!("{idle:.0} / {busy:.0}");
        let cells = counts.map(|count| count.to_string()).chain([lone]);
        [name_of(subject)].into_iter().chain(cells).collect()
    });
    let sums = [
        "a trip",
        "a span besides",
        "a span",
        "cycles of a span for a warp alone, memory idle / busy",
    ];
    table(&[&["kernel"], &pipes[..], &sums[..]].concat(), rows)
}

fn bounds(subjects: &[Subject]) -> String {
    let limits = Limit::ALL.map(|(_, name)| name);
    let rows = subjects.iter().map(|subject| {
        let bounds = subject.bounds(FRAGMENT_BYTES, Share::whole(subject));
        let (gbps, limit) = bounds.tightest();
        let [read, written] = subject.span_traffic(FRAGMENT_BYTES);
        let in_flight = subject.warp_bytes_in_flight * subject.resident_warps;
        let mut row = vec![name_of(subject), format!("{read:.0} / {written:.0}")];
        row.extend(bounds.rates().map(rate));
        row.extend([
            format!("{:.0}", subject.resident_warps),
            format!("{} / {}", kib(in_flight), kib(subject.needed_in_flight(gbps))),
            format!("**{gbps:.0}**, {:.2} of a copy, by {}", share_of_copy(gbps), limit.name()),
        ]);
        row
    });
    let start = ["kernel", "bytes read / written a span"];
    let end = ["warps", "KiB in flight / needed", "predicted"];
    table(&[&start[..], &limits[..], &end[..]].concat(), rows)
}

fn judge_line(judge: &SpanCode<'_>) -> Result<String, String> {
    let cycles = judge.lone_cycles(Memory::Busy)?;
    Ok(format!(
        "Judge: {} instructions and {:.1} us for 32 parts, whatever the chunk's size; a launch of \
         any kernel costs more.",
        judge.rest_mix()?.total(),
        cycles / CLOCK_GHZ.value / 1e3
    ))
}

fn fragments(subjects: &[Subject]) -> Result<String, String> {
    let rows = FRAGMENTS.map(|fragment_bytes| {
        let path = if fragment_bytes.is_multiple_of(16) { "16" } else { "4" };
        let of = |name: &str| {
            let subject = find(subjects, &format!("kvtide_{name}"))?;
            Ok::<_, String>(subject.bounds(fragment_bytes, Share::whole(subject)))
        };
        let gather = of(&format!("gather_{path}"))?;
        let scatter = of(&format!("scatter_{path}"))?;
        let unpack = in_turn(of("checksum")?.tightest().0, scatter.tightest().0);
        let row = Row::of_fragments(fragment_bytes);
        let ids = f64::from(SPAN_BYTES) / f64::from(fragment_bytes.next_multiple_of(16));
        Ok::<_, String>(vec![
            format!("{fragment_bytes}"),
            path.to_owned(),
            format!("{ids:.1}"),
            format!("{:.1}", row.lines),
            format!("{:.2}", sector_surplus(fragment_bytes)),
            predicted(gather),
            predicted(scatter),
            format!("{unpack:.0}, {:.2}", share_of_copy(unpack)),
        ])
    });
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
    let head = [
        "fragment bytes",
        "path",
        "ids a span",
        "lines a row of 512 bytes",
        "bytes moved a byte",
        "gather: GB/s, of a copy, by",
        "scatter: GB/s, of a copy, by",
        "unpack: GB/s, of a copy",
    ];
    Ok(table(&head, rows))
}

fn capped(subjects: &[Subject]) -> Result<String, String> {
    let rates_of = |name: &str| {
        let subject = find(subjects, &format!("kvtide_{name}"))?;
        let rate = |memory| subject.bounds(FRAGMENT_BYTES, Share::capped(CAP, memory)).tightest().0;
        Ok::<_, String>([rate(Memory::Busy), rate(Memory::Idle)])
    };
    let [checksum_busy, checksum_idle] = rates_of("checksum")?;
    let mut rows = vec![capped_row("checksum", [checksum_busy, checksum_idle])];
    for path in ["16", "4"] {
        let [gather, scatter] = [format!("gather_{path}"), format!("scatter_{path}")];
        let [busy, idle] = rates_of(&scatter)?;
        let unpack = [in_turn(checksum_busy, busy), in_turn(checksum_idle, idle)];
        rows.push(capped_row(&gather, rates_of(&gather)?));
        rows.push(capped_row(&scatter, [busy, idle]));
        rows.push(capped_row(&format!("unpack_{path}"), unpack));
    }
    let times = LINK_GBPS.map(|link| format!("times {} GB/s", link.value));
    let needed =
        LINK_GBPS.map(|link| format!("thread blocks for {LINK_MULTIPLE} x {} GB/s", link.value));
    let mut head = vec!["kernel", "GB/s, memory busy / idle"];
    head.extend(times.iter().chain(&needed).map(String::as_str));
    Ok(table(&head, rows))
}

fn capped_row(name: &str, [busy, idle]: [f64; 2]) -> Vec<String> {
    let of_both = |of: &dyn Fn(f64) -> String| format!("{} / {}", of(busy), of(idle));
    let times = LINK_GBPS.map(|link| of_both(&|gbps| format!("{:.1}", gbps / link.value)));
    // Few thread blocks do not come near the whole machine's bounds, so that the rate is theirs.
    let needed = LINK_GBPS.map(|link| {
        of_both(&|gbps| {
            format!("{:.0}", (LINK_MULTIPLE * link.value * f64::from(CAP) / gbps).ceil())
        })
    });
    let start = [format!("`{name}`"), of_both(&|gbps| format!("{gbps:.0}"))];
    start.into_iter().chain(times).chain(needed).collect()
}

/// Returns the rate of two passes over the same payload, one after the other.
fn in_turn(one: f64, other: f64) -> f64 {
    1.0 / (1.0 / one + 1.0 / other)
}

fn predicted(bounds: Bounds) -> String {
    let (gbps, limit) = bounds.tightest();
    format!("{gbps:.0}, {:.2}, {}", share_of_copy(gbps), limit.name())
}

fn share_of_copy(gbps: f64) -> f64 {
    gbps / device_copy_gbps()
}

fn find<'all>(subjects: &'all [Subject], name: &str) -> Result<&'all Subject, String> {
    let mut found = subjects.iter().filter(|subject| subject.profile.kernel == name);
    found.next().ok_or_else(|| format!("{name} has no roofline"))
}

fn name_of(subject: &Subject) -> String {
    format!("`{}`", subject.profile.kernel.trim_start_matches("kvtide_"))
}

/// Returns a rate, or a dash where there is no such bound.
fn rate(gbps: f64) -> String {
    if gbps.is_finite() { format!("{gbps:.0}") } else { "-".to_owned() }
}

fn kib(bytes: f64) -> String {
    format!("{:.0}", bytes / 1024.0)
}
