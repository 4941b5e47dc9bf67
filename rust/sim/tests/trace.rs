//! What the reader takes, and what it says about what it does not take.

mod common;

use std::io::Write;

use common::{json_lines, shared, synthetic, write};
use kvstore_sim::{Capacity, Loaded, Policy, Request, Trace};

fn read(text: impl AsRef<[u8]>) -> Result<Vec<Request>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.jsonl", text);
    let prefix = format!("{}: ", path.display());
    Trace::open(path, None).unwrap().collect::<Result<Vec<_>, _>>().map_err(|error| {
        let text = error.to_string();
        text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
    })
}

fn line(rest: &str) -> String {
    format!(r#"{{"timestamp": 5, "input_length": 1, "output_length": 2, {rest}}}"#)
}

#[test]
fn all_compressions_hold_the_same_requests() {
    let requests = synthetic();
    let text = json_lines(&requests);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();

    let plain = read(&text).unwrap();
    assert_eq!(plain.iter().map(|request| request.blocks.clone()).collect::<Vec<_>>(), requests);
    assert_eq!((plain[3].timestamp_ms, plain[3].output_length), (750.0, 7));
    assert_eq!(read(gzip).unwrap(), plain);
    assert_eq!(read(zstd).unwrap(), plain);
}

#[test]
fn runs_stand_for_their_ids() {
    let requests = read(line(r#""runs": [[4, 3], [9, 1], [0, 0]], "session": 3"#)).unwrap();
    assert_eq!(requests[0].blocks, [4, 5, 6, 9]);
    assert_eq!(read(line(r#""runs": []"#)).unwrap()[0].blocks, [0u64; 0]);
}

#[test]
fn components_become_chains() {
    let text = |sys: &str, user: &str| {
        format!(
            r#"{{"timestamp": "2.5", "input_length": 1, "output_length": 2, "hash_ids":
            {{"user_input": [{user}], "passages_ids": [], "sys_prompt": [{sys}]}}}}"#
        )
        .replace('\n', "")
    };
    let lines = [text("7, 8", "5"), text("7", "8"), text("8", "5"), text("7, 8", "5")].join("\n");
    let requests = read(lines).unwrap();
    assert_eq!(requests[0].timestamp_ms, 2500.0);
    let blocks: Vec<_> = requests.iter().map(|request| &request.blocks[..]).collect();
    // Component 8 behind 7 is one block wherever it is listed, at the head it is another.
    assert_eq!(blocks, [&[0, 1, 2][..], &[0, 1], &[3, 4], &[0, 1, 2]]);
}

#[test]
fn a_head_is_read_and_no_more() {
    let text = line(r#""hash_ids": [1]"#) + "\n\n" + &line(r#""hash_ids": [1, 2]"#) + "\nnot JSON";
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.jsonl", text);
    let info = Loaded::read(&path, Some(2)).unwrap().info();
    assert_eq!((info.requests, info.blocks_requested, info.unique_blocks), (2, 3, 2));
    let mut trace = Trace::open(&path, None).unwrap();
    assert!(trace.by_ref().take(2).all(|request| request.is_ok()));
    let error = trace.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("t.jsonl: line 4: not JSON: "), "{error}");
    assert!(trace.next().is_none(), "nothing comes after an error");
}

#[test]
fn errors_name_line_field_and_value() {
    let good = line(r#""hash_ids": [1]"#);
    let cases = [
        (line(r#""hash_ids": [1, -2]"#), "hash_ids[1]: must be an integer of at least 0, not -2"),
        (line(r#""hash_ids": 3"#), "hash_ids: must be a list, not 3"),
        (
            line(r#""hash_ids": {"sys_prompt": [1.5]}"#),
            "hash_ids.sys_prompt[0]: must be an integer of at least 0, not 1.5",
        ),
        (
            line(r#""hash_ids": {"sys": []}"#),
            r#"hash_ids.sys: must be one of ["sys_prompt", "passages_ids", "history", "web_search", "user_input"]"#,
        ),
        (line(r#""runs": [[1]]"#), "runs[0]: must be [first, count], not a list"),
        (
            line(r#""runs": [[0, 3], [1, "2"]]"#),
            r#"runs[1][1]: must be an integer of at least 0, not "2""#,
        ),
        (
            line(r#""runs": [[0, 3], [1, 99999999999]]"#),
            "runs[1]: 100000000002 blocks so far, at most 16777216 are read",
        ),
        (
            line(r#""runs": [[18446744073709551615, 2]]"#),
            "runs[0]: 18446744073709551615 + 2 is above the largest id 18446744073709551615",
        ),
        (line(r#""runs": [], "hash_ids": []"#), "hash_ids and runs: one of them, not both"),
        (line(r#""other": 1"#), "hash_ids or runs: missing"),
        ("[1]".to_owned(), "must be a JSON object, not a list"),
        (r#"{"timestamp": 1, "output_length": 2}"#.to_owned(), "input_length: missing"),
        (
            r#"{"timestamp": "soon"}"#.to_owned(),
            r#"timestamp: must be milliseconds or a string of seconds, not "soon""#,
        ),
        (
            r#"{"timestamp": [1]}"#.to_owned(),
            "timestamp: must be milliseconds or a string of seconds, not a list",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read(format!("{good}\n{text}\n")), Err(format!("line 2: {expected}")));
    }
}

#[test]
fn an_id_behind_two_prefixes_is_no_chain() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.jsonl", json_lines(&[vec![1, 2], vec![3, 2]]));
    let error = Loaded::read(path, None).err().unwrap().to_string();
    assert!(error.contains("line 2: block 2: behind another block than before"), "{error}");
}

#[test]
fn a_file_cut_short_is_an_error_with_its_place() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(json_lines(&[vec![1], vec![2], vec![3]]).as_bytes()).unwrap();
    let whole = gzip.finish().unwrap();
    let error = read(&whole[..whole.len() - 20]).unwrap_err();
    assert!(error.starts_with("line 3: "), "{error}");
    let missing = Trace::open("/nowhere/t.jsonl", None).err().unwrap().to_string();
    assert!(missing.starts_with("/nowhere/t.jsonl: line 1: "), "{missing}");
}

#[test]
fn capacities_and_policies_have_one_spelling() {
    assert_eq!("1%".parse(), Ok(Capacity::Percent(1.0)));
    assert_eq!("0.5 %".parse::<Capacity>().map(|c| c.blocks(60_740)), Ok(303));
    assert_eq!("1827".parse(), Ok(Capacity::Blocks(1827)));
    assert_eq!("0.001%".parse::<Capacity>().map(|c| c.blocks(10)), Ok(1));
    for bad in ["", "0", "-1", "0%", "101%", "NaN%", "4294967295", "1 GiB"] {
        let error = bad.parse::<Capacity>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("capacity {bad:?}: must be")), "{error}");
    }
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "fifo".parse::<Policy>().unwrap_err().to_string();
    assert_eq!(error, r#"policy "fifo": must be one of leaf-lru, lru, optimum"#);
}

#[test]
fn published_traces_are_read_to_the_end() {
    for (name, requests) in [("mooncake_conversation", 12_031), ("ragpulse_days1-5", 5_167)] {
        if let Some(path) = shared(&format!("{name}.jsonl.gz")) {
            let count = Trace::open(path, None).unwrap().map(Result::unwrap).count();
            assert_eq!(count, requests, "{name}");
        }
    }
}
