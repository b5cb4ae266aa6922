//! docs/keys.md holds for the code: every vector in its tables is derived through the public API.
#![expect(clippy::unwrap_used, reason = "a table that does not parse fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kvtide::fingerprint::{
    Codec, ContentFingerprint, KeyMode, KvScales, RopeSettings, StoreId, StoreIdentity,
};
use kvtide::key::{
    EngineHashDomain, Extra, HashSeed, KeyChain, Lora, MultimodalItem, Persistence, TenantSalt,
};
use kvtide::units::{BlockCount, GroupIndex, TokenCount};

/// Tokens of a chunk in the sequences of the links table.
const CHUNK_TOKENS: usize = 4;

/// The rows of all vector tables by name, without the name: inputs, then the result.
struct Vectors(BTreeMap<String, Vec<String>>);

impl Vectors {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/keys.md");
        let page = fs::read_to_string(path).unwrap();
        let (_, section) = page.split_once("## Vectors").unwrap();
        let rows = section
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
            .map(|line| line.split(" | ").map(str::to_owned).collect::<Vec<_>>())
            .filter(|cells| cells[0] != "name");
        let mut vectors = BTreeMap::new();
        for mut cells in rows {
            let name = cells.remove(0);
            assert!(vectors.insert(name.clone(), cells).is_none(), "{name} appears twice");
        }
        Self(vectors)
    }

    fn names(&self, kinds: &[char]) -> Vec<&str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| name.starts_with(kinds)).collect()
    }

    fn inputs<const N: usize>(&self, name: &str) -> [&str; N] {
        let cells = &self.0[name];
        let inputs: Vec<&str> = cells[..cells.len() - 1].iter().map(String::as_str).collect();
        inputs.try_into().unwrap()
    }

    fn result(&self, name: &str) -> &str {
        self.0[name].last().unwrap()
    }

    fn content(&self, name: &str) -> ContentFingerprint {
        self.result(name).parse().unwrap()
    }

    /// Starts a chain at the root `name`.
    fn chain(&self, name: &str, chunk_tokens: usize) -> KeyChain {
        let [content, salt, group] = self.inputs(name);
        let (content, salt) = (self.content(content), salt_of(salt));
        KeyChain::tokens(&content, &salt, group_of(group), count(chunk_tokens)).unwrap()
    }

    /// Derives the link or tail `name` at the end of its whole sequence.
    fn link(&self, name: &str) -> String {
        let mut lineage = vec![name];
        let root = loop {
            let [previous, _, _] = self.inputs(lineage.last().unwrap());
            if previous.starts_with('R') {
                break previous;
            }
            lineage.push(previous);
        };
        let tokens = tokens_of(self.inputs::<3>(name)[1]);
        let mut chain = self.chain(root, CHUNK_TOKENS.max(tokens.len()));
        for (position, link) in lineage.iter().rev().enumerate() {
            let [_, tokens, extras] = self.inputs(link);
            for extra in extras_of(extras, position * CHUNK_TOKENS) {
                chain.add_extra(extra).unwrap();
            }
            chain.push(&tokens_of(tokens)).unwrap();
        }
        if name.starts_with('T') {
            let tail = chain.tail_key(count(tokens.len())).unwrap().unwrap();
            return tail.key.to_string();
        }
        assert_eq!(chain.keys().len(), lineage.len(), "{name} is a full chunk");
        chain.keys().last().unwrap().to_string()
    }
}

fn count(tokens: usize) -> TokenCount {
    TokenCount::new(tokens.try_into().unwrap())
}

fn group_of(cell: &str) -> GroupIndex {
    GroupIndex::new(cell.parse().unwrap())
}

fn bytes_of(cell: &str) -> Vec<u8> {
    let digits = if cell == "\"\"" { "" } else { cell };
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn salt_of(cell: &str) -> TenantSalt {
    match cell {
        "-" => TenantSalt::none(),
        bytes => TenantSalt::new(bytes_of(bytes)),
    }
}

fn tokens_of(cell: &str) -> Vec<u32> {
    if let Some((first, end)) = cell.split_once("..") {
        return (first.parse().unwrap()..end.parse().unwrap()).collect();
    }
    cell.split(' ').map(|token| token.parse().unwrap()).collect()
}

/// The extras that begin in the link whose first token is at `first`.
fn extras_of(cell: &str, first: usize) -> Vec<Extra> {
    let extra = |text: &str| match text.split(' ').collect::<Vec<_>>()[..] {
        ["lora", name, digest] => {
            Some(Extra::Lora(Lora { name: name.to_owned(), digest: bytes_of(digest) }))
        }
        ["item", digest, offset, tokens] => {
            let offset = usize::try_from(offset.parse::<i64>().unwrap()).ok()?;
            Some(Extra::Multimodal(MultimodalItem {
                first_token: count(first + offset),
                tokens: count(tokens.parse().unwrap()),
                digest: bytes_of(digest),
            }))
        }
        _ => panic!("{text} is no extra"),
    };
    let texts = cell.split("; ").filter(|text| *text != "-");
    texts.filter_map(extra).collect()
}

#[test]
fn content_fingerprint_vectors_hold() {
    let vectors = Vectors::read();
    let names = vectors.names(&['C']);
    assert_eq!(names.len(), 3);
    for name in names {
        let [model_id, revision, weights, rope, element_type, kv_scales, mode] =
            vectors.inputs(name);
        let mut builder = ContentFingerprint::builder()
            .model_id(model_id)
            .element_type(element_type)
            .rope(match rope {
                "-" => RopeSettings::AsInCheckpoint,
                text => RopeSettings::Override(text.to_owned()),
            })
            .kv_scales(match kv_scales {
                "none" => KvScales::None,
                "checkpoint" => KvScales::AsInCheckpoint,
                digest => KvScales::Digest(bytes_of(digest)),
            })
            .key_mode(match mode {
                "tokens" => KeyMode::Tokens,
                "engine hashes" => KeyMode::EngineHashes,
                other => panic!("{other} is no key mode"),
            });
        if revision != "-" {
            builder = builder.revision(revision);
        }
        if weights != "-" {
            builder = builder.weights_digest(bytes_of(weights));
        }
        let content = builder.build().unwrap();
        assert_eq!(content.to_string(), vectors.result(name), "{name}");
    }
}

#[test]
fn root_vectors_hold() {
    let vectors = Vectors::read();
    let names = vectors.names(&['R']);
    assert_eq!(names.len(), 4);
    for name in names {
        let root = vectors.chain(name, CHUNK_TOKENS).root();
        assert_eq!(root.to_string(), vectors.result(name), "{name}");
    }
}

#[test]
fn link_and_tail_vectors_hold() {
    let vectors = Vectors::read();
    let names = vectors.names(&['L', 'T']);
    assert_eq!(names.len(), 11);
    for name in names {
        assert_eq!(vectors.link(name), vectors.result(name), "{name}");
    }
}

#[test]
fn engine_hash_vectors_hold() {
    let vectors = Vectors::read();
    let names = vectors.names(&['H']);
    assert_eq!(names.len(), 3);
    for name in names {
        let [content, salt, algorithm, seed, tokens_per_hash, group, hash] = vectors.inputs(name);
        let tokens_per_hash = count(tokens_per_hash.parse().unwrap());
        let domain = EngineHashDomain {
            algorithm: algorithm.to_owned(),
            seed: match seed {
                "-" => HashSeed::PerProcess,
                bytes => HashSeed::Fixed(bytes_of(bytes)),
            },
            tokens_per_hash,
        };
        let mut chain = KeyChain::engine_hashes(
            &vectors.content(content),
            &salt_of(salt),
            &domain,
            group_of(group),
            tokens_per_hash,
            Persistence::ProcessLocal,
        )
        .unwrap();
        let keys = chain.push_hashes(&[bytes_of(hash)]).unwrap();
        assert_eq!(keys[0].to_string(), vectors.result(name), "{name}");
    }
}

#[test]
fn store_id_vectors_hold() {
    let vectors = Vectors::read();
    let names = vectors.names(&['S']);
    assert_eq!(names.len(), 2);
    for name in names {
        let [content, layout, group, codec, blocks_per_chunk, format_version] =
            vectors.inputs(name);
        assert_eq!(codec, "raw");
        let id = StoreId::new(&StoreIdentity {
            content: &vectors.content(content),
            layout: &bytes_of(layout),
            group: group_of(group),
            codec: Codec::Raw,
            blocks_per_chunk: BlockCount::new(blocks_per_chunk.parse().unwrap()),
            format_version: format_version.parse().unwrap(),
        });
        assert_eq!(id.to_string(), vectors.result(name), "{name}");
    }
}
