//! One line of a trace: from JSON text to requests.
//!
//! Lists turn into runs and requests while they are parsed: memory stays in proportion to the
//! text, whatever counts it claims. Called by `trace` only.

use super::error::FieldProblem;
use super::lenient::{FieldFault, List, Object, Scalar, Sink};
use super::request::{BlockNumber, BlockRun, Request, RequestError, RunList, Scope};
use serde::Deserialize;

/// What one line holds.
pub(super) struct Line {
    /// Requests in order; those of a session have scope 0 until the caller numbers it.
    pub(super) requests: Vec<Request>,
    /// Whether the line is a session, whose block numbers are its own.
    pub(super) is_session: bool,
}

/// Reads one line; the outer error is about its JSON, the inner one about a field.
pub(super) fn parse_line(text: &str) -> Result<Result<Line, FieldFault>, serde_json::Error> {
    serde_json::from_str::<Object<RawLine>>(text).map(|Object(line)| line.into_line())
}

/// `hash_ids`: one number a block.
#[derive(Default)]
struct IdSink(RunList);

impl Sink for IdSink {
    type Item = Scalar;
    const EXPECTED: &'static str = "an array of block numbers";

    fn put(&mut self, item: Scalar) -> Result<(), FieldFault> {
        let number = item.whole().map_err(|problem| FieldFault::new("", problem))?;
        put_run(&mut self.0, number, 1)
    }
}

/// `hash_runs`: pairs of first number and count.
#[derive(Default)]
struct RunSink(RunList);

impl Sink for RunSink {
    type Item = List<PairSink>;
    const EXPECTED: &'static str = "an array of [first, count] runs";

    fn put(&mut self, item: List<PairSink>) -> Result<(), FieldFault> {
        let pair = item.finish("")?;
        if pair.length != 2 {
            let length = pair.length;
            return Err(FieldFault::new("", FieldProblem::NotAPair { length }));
        }
        let [first, count] = pair.numbers;
        put_run(&mut self.0, first, count)
    }
}

fn put_run(list: &mut RunList, first: u64, count: u64) -> Result<(), FieldFault> {
    BlockRun::new(BlockNumber::new(first), count)
        .and_then(|run| list.push(run))
        .map_err(|error: RequestError| FieldFault::new("", error))
}

/// `[first, count]`.
#[derive(Default)]
struct PairSink {
    numbers: [u64; 2],
    /// Numbers found, more than two included.
    length: usize,
}

impl Sink for PairSink {
    type Item = Scalar;
    const EXPECTED: &'static str = "a [first, count] run";

    fn put(&mut self, item: Scalar) -> Result<(), FieldFault> {
        let number = item.whole().map_err(|problem| FieldFault::new("", problem))?;
        if let Some(place) = self.numbers.get_mut(self.length) {
            *place = number;
        }
        self.length += 1;
        Ok(())
    }
}

/// `requests` of a session or of a sub-agent in it, nested lists taken up where they stand.
#[derive(Default)]
struct EntrySink(Vec<Request>);

impl Sink for EntrySink {
    type Item = Object<RawEntry>;
    const EXPECTED: &'static str = "an array of requests";

    fn put(&mut self, Object(item): Object<RawEntry>) -> Result<(), FieldFault> {
        item.append_to(&mut self.0)
    }
}

/// The three ways in which an object states blocks; it has exactly one of them.
enum Blocks {
    Own(RunList),
    Nested(Vec<Request>),
}

fn blocks(
    hash_ids: Option<List<IdSink>>,
    hash_runs: Option<List<RunSink>>,
    requests: Option<List<EntrySink>>,
) -> Result<Blocks, FieldFault> {
    match (hash_ids, hash_runs, requests) {
        (Some(ids), None, None) => Ok(Blocks::Own(ids.finish("hash_ids")?.0)),
        (None, Some(runs), None) => Ok(Blocks::Own(runs.finish("hash_runs")?.0)),
        (None, None, Some(entries)) => Ok(Blocks::Nested(entries.finish("requests")?.0)),
        (None, None, None) => Err(FieldFault::new("", FieldProblem::NoBlocks)),
        _ => Err(FieldFault::new("", FieldProblem::SeveralBlockLists)),
    }
}

/// A line: a request with global block numbers, or a session.
#[derive(Deserialize)]
struct RawLine {
    #[serde(default)]
    timestamp: Scalar,
    #[serde(default)]
    input_length: Scalar,
    #[serde(default)]
    output_length: Scalar,
    hash_ids: Option<List<IdSink>>,
    hash_runs: Option<List<RunSink>>,
    requests: Option<List<EntrySink>>,
    hash_id_scope: Option<serde_json::Value>,
}

impl RawLine {
    fn into_line(self) -> Result<Line, FieldFault> {
        match blocks(self.hash_ids, self.hash_runs, self.requests)? {
            Blocks::Own(runs) => {
                let request = Request::from_run_list(Scope::GLOBAL, runs)
                    .with_tokens(
                        self.input_length.tokens("input_length")?,
                        self.output_length.tokens("output_length")?,
                    )
                    .with_arrival_ms(self.timestamp.milliseconds("timestamp")?);
                Ok(Line { requests: vec![request], is_session: false })
            }
            Blocks::Nested(requests) => {
                check_id_scope(self.hash_id_scope)?;
                Ok(Line { requests, is_session: true })
            }
        }
    }
}

fn check_id_scope(id_scope: Option<serde_json::Value>) -> Result<(), FieldFault> {
    match id_scope {
        None => Ok(()),
        Some(name) if name == "local" => Ok(()),
        Some(other) => {
            let found = other.to_string().chars().take(40).collect();
            let problem = FieldProblem::UnknownIdScope { found };
            Err(FieldFault::new("hash_id_scope", problem))
        }
    }
}

/// An entry of a session's `requests`: a request, or a sub-agent with requests of its own.
#[derive(Deserialize)]
struct RawEntry {
    #[serde(default)]
    t: Scalar,
    #[serde(default, rename = "in")]
    input: Scalar,
    #[serde(default, rename = "out")]
    output: Scalar,
    hash_ids: Option<List<IdSink>>,
    hash_runs: Option<List<RunSink>>,
    requests: Option<List<EntrySink>>,
}

impl RawEntry {
    fn append_to(self, requests: &mut Vec<Request>) -> Result<(), FieldFault> {
        let arrival_ms = self.t.seconds_as_ms("t")?;
        match blocks(self.hash_ids, self.hash_runs, self.requests)? {
            Blocks::Own(runs) => requests.push(
                Request::from_run_list(Scope::GLOBAL, runs)
                    .with_tokens(self.input.tokens("in")?, self.output.tokens("out")?)
                    .with_arrival_ms(arrival_ms),
            ),
            // Times of a nested list count from its marker.
            Blocks::Nested(nested) => requests.extend(nested.into_iter().map(|request| {
                let since_marker_ms = request.arrival_ms();
                let shifted_ms = since_marker_ms.map(|ms| ms + arrival_ms.unwrap_or(0));
                request.with_arrival_ms(shifted_ms)
            })),
        }
        Ok(())
    }
}
