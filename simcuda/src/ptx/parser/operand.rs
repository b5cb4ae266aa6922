//! The operands of an instruction.
//!
//! Here a mismatch is no error yet: `None` says that the operands have a form that the parser does
//! not know, so that the instruction is refused when it is reached.

use super::super::syntax::Operand;
use super::{Parser, integer_literal};

impl Parser<'_> {
    /// Takes operands up to the semicolon, which it leaves.
    pub(super) fn operands(&mut self) -> Option<Vec<Operand>> {
        if self.peek().text == ";" {
            return Some(Vec::new());
        }
        let operands = self.operand_list()?;
        (self.peek().text == ";").then_some(operands)
    }

    fn operand_list(&mut self) -> Option<Vec<Operand>> {
        let mut operands = vec![self.operand()?];
        while self.accept(",") {
            operands.push(self.operand()?);
        }
        Some(operands)
    }

    fn operand(&mut self) -> Option<Operand> {
        if self.accept("{") {
            let elements = self.operand_list()?;
            return self.accept("}").then_some(Operand::Vector(elements));
        }
        if self.accept("[") {
            let base = Box::new(self.scalar()?);
            let offset = if self.accept("+") { self.offset()? } else { 0 };
            return self.accept("]").then_some(Operand::Address { base, offset });
        }
        if self.accept("!") {
            return self.name().ok().map(Operand::Negated);
        }
        let first = self.scalar()?;
        if !self.accept("|") {
            return Some(first);
        }
        let Operand::Name(first) = first else { return None };
        self.name().ok().map(|second| Operand::Pair(first, second))
    }

    /// Takes a name or an integer.
    fn scalar(&mut self) -> Option<Operand> {
        if self.peek().text == "-" || integer_literal(self.peek().text).is_some() {
            return self.offset().map(Operand::Integer);
        }
        self.name().ok().map(Operand::Name)
    }

    fn offset(&mut self) -> Option<i128> {
        self.integer().ok()
    }
}
