//! What the trace reader takes and what it refuses, with the words it refuses it in.

use super::{LINE_BYTES_MAX, Trace};
use crate::replay::error::TraceError;
use crate::replay::request::{BlockNumber, REQUEST_BLOCKS_MAX, Request, Scope};
use proptest::prelude::*;
use std::io::{BufReader, Read};

fn read(text: &str) -> Result<Trace, TraceError> {
    Trace::read(text.as_bytes())
}

fn numbers(request: &Request) -> Vec<u64> {
    request.blocks().map(BlockNumber::get).collect()
}

/// One line of shape (b) with `fields` in place of the blocks.
fn request_line(fields: &str) -> String {
    format!("{{\"input_length\":8,\"output_length\":2,{fields}}}")
}

/// One session with `entry` as its second request.
fn session_line(entry: &str) -> String {
    format!("{{\"requests\":[{{\"in\":1,\"out\":1,\"hash_ids\":[1]}},{entry}]}}")
}

fn refusal(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

#[test]
fn written_out_ids_and_runs_mean_the_same() {
    let ids = read(&request_line("\"timestamp\":7,\"hash_ids\":[3,4,5,9,8,9]")).unwrap();
    let runs = read(&request_line("\"timestamp\":7,\"hash_runs\":[[3,3],[9,1],[8,2]]")).unwrap();
    assert_eq!(ids, runs);
    let request = &ids.requests()[0];
    assert_eq!(numbers(request), [3, 4, 5, 9, 8, 9]);
    assert_eq!(request.runs().len(), 3);
    assert_eq!(request.scope(), Scope::GLOBAL);
    assert_eq!((request.input_tokens().get(), request.output_tokens().get()), (8, 2));
    assert_eq!(request.arrival_ms(), Some(7));
    assert_eq!(ids.block_use_count(), 6);
    assert_eq!(ids.unique_blocks().count(), 5);
}

#[test]
fn sessions_run_one_after_another_in_scopes_of_their_own() {
    let nested = r#"{"id":"a","hash_id_scope":"local","requests":[
        {"t":0.5,"type":"n","in":2,"out":1,"hash_runs":[[1,2]]},
        {"t":10.25,"type":"subagent","requests":[
            {"t":0,"type":"s","in":3,"out":1,"hash_runs":[[8,1]]},
            {"t":2.125,"in":4,"out":1,"hash_ids":[8,9]}]},
        {"in":5,"out":1,"hash_runs":[[1,3]]}]}"#
        .replace('\n', " ");
    let second = r#"{"requests":[{"t":1,"in":6,"out":1,"hash_runs":[[1,2]]}]}"#;
    let trace = read(&format!("{nested}\n{second}\n")).unwrap();
    let seen: Vec<_> = trace
        .requests()
        .iter()
        .map(|request| (request.scope().get(), request.arrival_ms(), numbers(request)))
        .collect();
    let expected = [
        (1, Some(500), vec![1, 2]),
        (1, Some(10_250), vec![8]),
        (1, Some(12_375), vec![8, 9]),
        (1, None, vec![1, 2, 3]),
        (2, Some(1_000), vec![1, 2]),
    ];
    assert_eq!(seen, expected);
    assert_eq!(trace.unique_blocks().count(), 3 + 2 + 2);
}

#[test]
fn line_ends_blank_lines_a_byte_order_mark_and_unknown_fields_do_not_matter() {
    let line = request_line("\"hash_ids\":[1,2]");
    let plain = read(&format!("{line}\n{line}\n")).unwrap();
    assert_eq!(read(&format!("{line}\n{line}")).unwrap(), plain);
    assert_eq!(read(&format!("\u{feff}{line}\r\n\r\n  \n{line}\r\n\n")).unwrap(), plain);
    let with_more = request_line("\"hash_ids\":[1,2],\"group\":{\"a\":[null]},\"timestamp\":null");
    assert_eq!(read(&format!("{with_more}\n{line}")).unwrap(), plain);
}

#[test]
fn empty_requests_and_sessions_are_fine_but_an_empty_file_is_not() {
    let trace = read(&format!("{{\"requests\":[]}}\n{}", request_line("\"hash_ids\":[]"))).unwrap();
    assert_eq!(trace.requests().len(), 1);
    assert_eq!(trace.block_use_count(), 0);
    for empty in ["", "\n\n", "\u{feff}", "{\"requests\":[]}"] {
        assert_eq!(
            refusal(empty),
            "the trace has no requests; give a file with one JSON object a line"
        );
    }
}

const WHOLE: &str = "a whole number from 0 to 18446744073709551615";

/// Checks that a request line with each of `cases`' fields is refused in its words.
fn assert_fields_refused(cases: &[(&str, &str)]) {
    let good = request_line("\"hash_ids\":[1]");
    for (fields, expected) in cases {
        let text = format!("{good}\n\n{}\n", request_line(fields));
        let expected = expected.replace("WHOLE", WHOLE);
        assert_eq!(refusal(&text), format!("line 3: {expected}"));
    }
}

#[test]
fn bad_block_numbers_are_named_with_line_path_and_remedy() {
    assert_fields_refused(&[
        (r#""hash_ids":[1,-2]"#, "hash_ids[1] is -2; give WHOLE"),
        (r#""hash_ids":[1,2.5,-3]"#, "hash_ids[1] is 2.5; give WHOLE"),
        (r#""hash_ids":[3.0]"#, "hash_ids[0] is 3.0; give WHOLE"),
        (
            r#""hash_ids":[18446744073709551616]"#,
            "hash_ids[0] is 1.8446744073709552e19; give WHOLE",
        ),
        (r#""hash_ids":["7"]"#, "hash_ids[0] is a string, not WHOLE"),
        (r#""hash_ids":[null]"#, "hash_ids[0] is missing; every request states it"),
        (r#""hash_ids":{"1":2}"#, "hash_ids is an object, not an array of block numbers"),
        (r#""hash_runs":[[1]]"#, "hash_runs[0] has 1 numbers; a run is [first, count]"),
        (r#""hash_runs":[[1,2,3]]"#, "hash_runs[0] has 3 numbers; a run is [first, count]"),
        (r#""hash_runs":[[1,-1]]"#, "hash_runs[0][1] is -1; give WHOLE"),
        (r#""hash_runs":[1,2]"#, "hash_runs[0] is a number, not a [first, count] run"),
    ]);
}

#[test]
fn runs_that_claim_too_much_are_named_with_line_path_and_remedy() {
    assert_fields_refused(&[
        (
            r#""hash_runs":[[0,1],[5,0]]"#,
            "hash_runs[1] has a run of 0 blocks at block 5; leave empty runs out",
        ),
        (
            r#""hash_runs":[[18446744073709551615,2]]"#,
            "hash_runs[0] has a run of 2 blocks from 18446744073709551615, which ends past \
             18446744073709551615; number blocks lower",
        ),
        (
            r#""hash_runs":[[0,4294967295]]"#,
            "hash_runs[0] has 4294967295 blocks or more, over the limit of 16777216 a request; \
             split the request or use larger blocks",
        ),
        (
            r#""hash_runs":[[0,16777216],[0,1]]"#,
            "hash_runs[1] has 16777217 blocks or more, over the limit of 16777216 a request; \
             split the request or use larger blocks",
        ),
    ]);
}

#[test]
fn bad_fields_of_a_request_are_named_with_line_and_remedy() {
    assert_fields_refused(&[
        (
            r#""hash_ids":[1],"hash_runs":[[1,1]]"#,
            "the request has more than one of hash_ids, hash_runs and requests; keep one",
        ),
        (
            r#""blocks":[1]"#,
            "the request has no blocks; give hash_ids or hash_runs, or requests for a session",
        ),
        (r#""hash_ids":[1],"timestamp":61.114"#, "timestamp is 61.114; give WHOLE"),
        (r#""hash_ids":[1],"timestamp":true"#, "timestamp is a boolean, not WHOLE"),
        (
            r#""hash_ids":[1],"timestamp":18446744073709551615"#,
            "timestamp is 18446744073709551615, over the limit of 9007199254740992",
        ),
    ]);
    let tokens = |input: &str| refusal(&format!("{{{input}\"output_length\":1,\"hash_ids\":[1]}}"));
    assert_eq!(tokens(""), "line 1: input_length is missing; every request states it");
    assert_eq!(
        tokens("\"input_length\":4294967296,"),
        "line 1: input_length is 4294967296, over the limit of 4294967295"
    );
}

#[test]
fn bad_fields_of_a_session_are_named_with_their_place_in_it() {
    let cases = [
        (
            r#"{"in":1,"out":-1,"hash_ids":[1]}"#,
            "requests[1].out is -1; give a whole number from 0 to 18446744073709551615",
        ),
        (
            r#"{"requests":[{"in":1,"out":1,"hash_runs":[[1,2],[9,0]]}]}"#,
            "requests[1].requests[0].hash_runs[1] has a run of 0 blocks at block 9; \
             leave empty runs out",
        ),
        (
            r#"{"type":"subagent","t":1}"#,
            "requests[1] has no blocks; give hash_ids or hash_runs, or requests for a session",
        ),
        (
            r#"{"in":1,"out":1,"t":-0.5,"hash_ids":[]}"#,
            "requests[1].t is -0.5; give a number of seconds from 0 on",
        ),
        (
            r#"{"in":1,"out":1,"t":1e300,"hash_ids":[]}"#,
            "requests[1].t is 1e300; give a number of seconds from 0 on",
        ),
        (
            r#"{"in":1,"out":1,"t":1e16,"hash_ids":[]}"#,
            "requests[1].t is 10000000000000000000, over the limit of 9007199254740992",
        ),
        (
            r#"{"in":1,"out":1,"t":"0","hash_ids":[]}"#,
            "requests[1].t is a string, not a number of seconds from 0 on",
        ),
    ];
    for (entry, expected) in cases {
        assert_eq!(refusal(&session_line(entry)), format!("line 1: {expected}"));
    }
    assert_eq!(
        refusal(r#"{"hash_id_scope":"global","requests":[]}"#),
        "line 1: hash_id_scope is \"global\"; only \"local\" is known, for numbers local to the \
         session"
    );
}

#[test]
fn what_is_not_json_lines_is_named_with_line_and_column() {
    let good = request_line("\"hash_ids\":[1]");
    let cut = &good[..good.len() - 3];
    assert_eq!(
        refusal(&format!("{good}\n{cut}")),
        "line 2: ends before its JSON object does; if it is the last line, the file was cut off: \
         fetch it again"
    );
    let object = "each line is one JSON object";
    let cases = [
        (
            "[0,8,2,[1]]".to_owned(),
            format!("column 1: invalid type: sequence, expected a JSON object; {object}"),
        ),
        (
            "17".to_owned(),
            format!("column 2: invalid type: integer `17`, expected a JSON object; {object}"),
        ),
        (
            format!("{good}{good}"),
            format!("column {}: trailing characters; {object}", good.len() + 1),
        ),
        ("input_length=5".to_owned(), format!("column 1: expected value; {object}")),
        (
            request_line("\"hash_ids\":[1],\"hash_ids\":[1]"),
            format!("column 61: duplicate field `hash_ids`; {object}"),
        ),
        (
            session_line("[0,1,1,[1]]"),
            format!("column 45: invalid type: sequence, expected a JSON object; {object}"),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(refusal(&line), format!("line 1: {expected}"));
    }
    let long = refusal(&format!("\"{}\"", "x".repeat(10_000)));
    assert!(long.len() < 300, "{} bytes", long.len());
}

#[test]
fn bytes_that_are_not_utf8_are_refused_even_where_no_field_is_read() {
    let mut bytes = request_line("\"hash_ids\":[1],\"note\":\"?\"").into_bytes();
    let at = bytes.iter().position(|&byte| byte == b'?').unwrap();
    bytes[at] = 0xff;
    let error = Trace::read(bytes.as_slice()).unwrap_err().to_string();
    let expected = format!("line 1: byte {} is not UTF-8", at + 1);
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn lists_nested_without_end_are_refused() {
    let depth = 10_000;
    let line = format!("{}{}", "{\"requests\":[".repeat(depth), "]}".repeat(depth));
    let error = refusal(&line);
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn a_line_without_end_is_refused_once_it_is_over_the_limit() {
    let endless = BufReader::with_capacity(1 << 20, std::io::repeat(b' '));
    let error = Trace::read(endless.take(LINE_BYTES_MAX * 2)).unwrap_err();
    assert!(matches!(error, TraceError::LineTooLong { line: 1 }), "{error}");
}

#[test]
fn more_unique_blocks_than_the_limit_are_refused_without_being_expanded() {
    let line =
        |first: u64| request_line(&format!("\"hash_runs\":[[{first},{REQUEST_BLOCKS_MAX}]]"));
    let lines = |count: u64| -> String {
        let lines = (0..count).map(|at| line(at << 32) + "\n");
        lines.collect()
    };
    assert_eq!(read(&lines(4)).unwrap().unique_blocks().count(), 1 << 26);
    assert_eq!(
        refusal(&lines(5)),
        "the trace has 83886080 unique blocks, over the limit of 67108864; split it or use \
         larger blocks"
    );
}

#[test]
fn a_reader_that_fails_is_reported_with_the_line_it_stopped_at() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the cable fell out"))
        }
    }
    let good = request_line("\"hash_ids\":[1]") + "\n";
    let reader = BufReader::new(good.as_bytes().chain(Failing));
    assert_eq!(
        Trace::read(reader).unwrap_err().to_string(),
        "cannot be read from line 2 on: the cable fell out"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Trace::read(bytes.as_slice());
    }

    #[test]
    fn any_change_to_a_good_line_is_read_or_refused(
        at: prop::sample::Index,
        with in "[-0-9\\[\\]{}\",.:a-z]{0,3}",
        length in 0_usize..4,
    ) {
        let entry = r#"{"t":1.5,"requests":[{"in":1,"out":2,"hash_runs":[[3,4]]}]}"#;
        let mut line = session_line(entry);
        let start = at.index(line.len());
        let end = (start + length).min(line.len());
        line.replace_range(start..end, &with);
        match read(&line) {
            Ok(trace) => prop_assert!(!trace.requests().is_empty()),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }

    #[test]
    fn what_is_written_is_read_back(
        requests in prop::collection::vec(
            (
                prop::collection::vec((0_u64..50, 1_u64..6), 0..6),
                any::<u32>(),
                any::<u32>(),
                0..1_u64 << 53,
            ),
            1..20,
        ),
    ) {
        let mut text = String::new();
        for (runs, input, output, timestamp) in &requests {
            text += &format!(
                "{{\"timestamp\":{timestamp},\"input_length\":{input},\"output_length\":{output},\
                 \"hash_runs\":{runs:?}}}\n",
            )
            .replace('(', "[")
            .replace(')', "]");
        }
        let trace = read(&text).unwrap();
        for (request, (runs, input, output, timestamp)) in trace.requests().iter().zip(&requests) {
            let expected: Vec<u64> =
                runs.iter().flat_map(|&(first, count)| first..first + count).collect();
            prop_assert_eq!(numbers(request), expected);
            prop_assert_eq!(request.input_tokens().get(), *input);
            prop_assert_eq!(request.output_tokens().get(), *output);
            prop_assert_eq!(request.arrival_ms(), Some(*timestamp));
        }
        prop_assert_eq!(trace.requests().len(), requests.len());
    }
}
