//! JSON values that may be of a wrong type without ending the parse.
//!
//! serde's own errors know a column but no field. Here a wrong value is carried as such until the
//! path of its field is known, so that an error names it. Called by `json` only.

use super::error::FieldProblem;
use crate::units::TokenCount;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Latest arrival time accepted, in milliseconds: sums of nested times cannot overflow.
const ARRIVAL_MS_MAX: u64 = 1 << 53;

/// What a count or a number of a block should be.
const WHOLE_NUMBER: &str = "a whole number from 0 to 18446744073709551615";
/// What a time in seconds should be.
const SECONDS: &str = "a number of seconds from 0 on";

/// A field and what is wrong with it; the path grows as the fault leaves nested lists.
#[derive(Debug)]
pub(super) struct FieldFault {
    pub(super) path: String,
    pub(super) problem: FieldProblem,
}

impl FieldFault {
    pub(super) fn new(path: &str, problem: impl Into<FieldProblem>) -> Self {
        Self { path: path.to_owned(), problem: problem.into() }
    }

    /// Puts the fault inside `outer`: `hash_runs` and `[3]` make `hash_runs[3]`.
    fn inside(self, outer: &str) -> Self {
        let joint = match self.path.as_str() {
            "" => "",
            inner if inner.starts_with('[') => "",
            _ => ".",
        };
        Self { path: format!("{outer}{joint}{}", self.path), problem: self.problem }
    }
}

/// A number, or whatever stands where one should.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Scalar {
    /// Missing or null.
    #[default]
    Absent,
    Whole(u64),
    /// Negative, or with a fraction, or over 2^64 - 1.
    Number(f64),
    /// Not a number: the JSON type.
    Other(&'static str),
}

impl Scalar {
    pub(super) fn whole(self) -> Result<u64, FieldProblem> {
        let expected = WHOLE_NUMBER;
        match self {
            Self::Absent => Err(FieldProblem::Missing),
            Self::Whole(value) => Ok(value),
            Self::Number(value) => Err(FieldProblem::BadNumber { value, expected }),
            Self::Other(found) => Err(FieldProblem::WrongType { found, expected }),
        }
    }

    pub(super) fn tokens(self, field: &str) -> Result<TokenCount, FieldFault> {
        let value = self.whole().map_err(|problem| FieldFault::new(field, problem))?;
        let limit = u32::MAX;
        u32::try_from(value).map(TokenCount::new).map_err(|_| {
            let limit = u64::from(limit);
            FieldFault::new(field, FieldProblem::TooLarge { value, limit })
        })
    }

    /// Reads a time in whole milliseconds.
    pub(super) fn milliseconds(self, field: &str) -> Result<Option<u64>, FieldFault> {
        if matches!(self, Self::Absent) {
            return Ok(None);
        }
        self.whole()
            .and_then(arrival_within_limit)
            .map(Some)
            .map_err(|problem| FieldFault::new(field, problem))
    }

    /// Reads a time in seconds, with or without a fraction, as milliseconds.
    pub(super) fn seconds_as_ms(self, field: &str) -> Result<Option<u64>, FieldFault> {
        let expected = SECONDS;
        let arrival_ms = match self {
            Self::Absent => return Ok(None),
            Self::Whole(seconds) => arrival_within_limit(seconds.saturating_mul(1000)),
            Self::Number(value) => Duration::try_from_secs_f64(value)
                .map_err(|_| FieldProblem::BadNumber { value, expected })
                .and_then(|time| {
                    arrival_within_limit(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
                }),
            Self::Other(found) => Err(FieldProblem::WrongType { found, expected }),
        };
        arrival_ms.map(Some).map_err(|problem| FieldFault::new(field, problem))
    }
}

fn arrival_within_limit(value: u64) -> Result<u64, FieldProblem> {
    let limit = ARRIVAL_MS_MAX;
    if value > limit {
        return Err(FieldProblem::TooLarge { value, limit });
    }
    Ok(value)
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "shown in an error only; serde_json gives i64 for negative numbers only"
        )]
        Ok(Scalar::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Number(value))
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::Other("a boolean"))
    }

    fn visit_str<E>(self, _: &str) -> Result<Scalar, E> {
        Ok(Scalar::Other("a string"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Scalar, A::Error> {
        drain(items)?;
        Ok(Scalar::Other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Scalar, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an object"))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

/// Reads the rest of an array and keeps nothing.
fn drain<'de, A: SeqAccess<'de>>(mut items: A) -> Result<(), A::Error> {
    while items.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// A `T` read from a JSON object only; a derived reader would take an array by position too.
pub(super) struct Object<T>(pub(super) T);

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries)).map(Object)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// What the items of an array are put into, one by one.
pub(super) trait Sink: Default {
    type Item: DeserializeOwned;
    /// What the field should be, for errors.
    const EXPECTED: &'static str;

    fn put(&mut self, item: Self::Item) -> Result<(), FieldFault>;
}

/// An array put into a sink; after the first fault the rest is only skipped.
pub(super) struct List<S>(Result<S, FieldFault>);

impl<S: Sink> List<S> {
    pub(super) fn finish(self, field: &str) -> Result<S, FieldFault> {
        self.0.map_err(|fault| fault.inside(field))
    }
}

struct ListVisitor<S>(PhantomData<S>);

impl<S: Sink> ListVisitor<S> {
    fn wrong(found: &'static str) -> List<S> {
        let expected = S::EXPECTED;
        List(Err(FieldFault::new("", FieldProblem::WrongType { found, expected })))
    }
}

impl<'de, S: Sink> Visitor<'de> for ListVisitor<S> {
    type Value = List<S>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(S::EXPECTED)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<S>, A::Error> {
        let mut sink = S::default();
        let mut index = 0_usize;
        while let Some(item) = items.next_element()? {
            if let Err(fault) = sink.put(item) {
                drain(items)?;
                return Ok(List(Err(fault.inside(&format!("[{index}]")))));
            }
            index += 1;
        }
        Ok(List(Ok(sink)))
    }

    fn visit_u64<E>(self, _: u64) -> Result<List<S>, E> {
        Ok(Self::wrong("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<List<S>, E> {
        Ok(Self::wrong("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<List<S>, E> {
        Ok(Self::wrong("a number"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<List<S>, E> {
        Ok(Self::wrong("a boolean"))
    }

    fn visit_unit<E>(self) -> Result<List<S>, E> {
        Ok(Self::wrong("null"))
    }

    fn visit_str<E>(self, _: &str) -> Result<List<S>, E> {
        Ok(Self::wrong("a string"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<List<S>, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::wrong("an object"))
    }
}

impl<'de, S: Sink> Deserialize<'de> for List<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}
