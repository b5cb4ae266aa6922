//! An opcode's modifiers, taken one by one; what is left over is refused.

use super::super::error::Unsupported;
use super::super::integer::Integer;

/// The parts of an opcode, and how many are read.
pub(super) struct Opcode<'text> {
    parts: &'text [String],
    at: usize,
}

impl<'text> Opcode<'text> {
    pub(super) fn new(parts: &'text [String]) -> Self {
        Self { parts, at: 1 }
    }

    /// Returns the instruction's name.
    pub(super) fn name(&self) -> &'text str {
        self.parts.first().map_or("", String::as_str)
    }

    /// Returns the next modifier, without taking it.
    fn peek(&self) -> Option<&'text str> {
        self.parts.get(self.at).map(String::as_str)
    }

    /// Takes the next modifier.
    pub(super) fn next(&mut self) -> Result<&'text str, Unsupported> {
        let modifier = self.peek().ok_or(Unsupported::ModifierMissing)?;
        self.at += 1;
        Ok(modifier)
    }

    /// Refuses the modifier that was taken last.
    pub(super) fn refuse<T>(&self) -> Result<T, Unsupported> {
        Err(Unsupported::Modifier(self.parts[self.at - 1].clone()))
    }

    /// Takes the next modifier if it is one of these.
    pub(super) fn accept(&mut self, modifiers: &[&str]) -> bool {
        let is_one = self.peek().is_some_and(|next| modifiers.contains(&next));
        self.at += usize::from(is_one);
        is_one
    }

    /// Takes a modifier that must be there.
    pub(super) fn expect(&mut self, modifier: &str) -> Result<(), Unsupported> {
        if self.next()? == modifier { Ok(()) } else { self.refuse() }
    }

    /// Takes the next modifier, which is one of these, and returns what it stands for.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        modifiers: &[&str],
        meanings: &[T],
    ) -> Result<T, Unsupported> {
        let next = self.next()?;
        let found = modifiers.iter().zip(meanings).find(|(modifier, _)| **modifier == next);
        found.map_or_else(|| self.refuse(), |(_, meaning)| Ok(*meaning))
    }

    /// Takes an integer type of one of these: `u`, `s` or `b` with these widths.
    pub(super) fn integer(&mut self, signs: &str, widths: &[u32]) -> Result<Integer, Unsupported> {
        let next = self.next()?;
        let kind = Integer::parse(next).filter(|kind| {
            let sign_fits = next == "pred" || next.starts_with(|sign| signs.contains(sign));
            sign_fits && widths.contains(&kind.bits)
        });
        kind.map_or_else(|| self.refuse(), Ok)
    }

    /// Checks that all modifiers are taken.
    pub(super) fn finish(&self) -> Result<(), Unsupported> {
        self.peek().map_or(Ok(()), |left| Err(Unsupported::Modifier(left.to_owned())))
    }
}
