//! The statements of a body.

use super::super::error::ParseError;
use super::super::syntax::{Item, Operand, RegisterName, Statement};
use super::{Parser, declared_bits};

impl Parser<'_> {
    /// Takes a block from brace to brace.
    pub(super) fn block(&mut self) -> Result<Vec<Item>, ParseError> {
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.accept("}") {
            if let Some(item) = self.body_item()? {
                items.push(item);
            }
        }
        Ok(items)
    }

    /// Takes one statement; `None` for what means nothing to a run.
    fn body_item(&mut self) -> Result<Option<Item>, ParseError> {
        let token = self.peek();
        match token.text {
            "{" => self.block().map(|items| Some(Item::Block(items))),
            ".reg" => self.registers().map(|registers| Some(Item::Registers(registers))),
            ".shared" | ".local" => {
                let variable = self.variable()?;
                self.expect(";")?;
                Ok(Some(Item::Variable(variable)))
            }
            ".loc" => self.debug_location().map(|()| None),
            ".pragma" => {
                // Advice to the assembler; nothing that changes a result.
                while !self.accept(";") {
                    self.skip("a string")?;
                }
                Ok(None)
            }
            text if text.starts_with('.') => self.unknown(),
            _ if token.is_word() && self.peek_at(1).text == ":" => self.label().map(Some),
            _ => self.statement().map(|statement| Some(Item::Instruction(statement))),
        }
    }

    /// Takes any token but the text's end.
    fn skip(&mut self, expected: &'static str) -> Result<(), ParseError> {
        if self.peek().text.is_empty() {
            return self.unexpected(expected);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes `.reg .b32 %r<9>, name;`.
    fn registers(&mut self) -> Result<Vec<RegisterName>, ParseError> {
        self.expect(".reg")?;
        let Some(bits) = declared_bits(self.peek().text) else { return self.unknown() };
        self.at += 1;
        let mut registers = Vec::new();
        for names in self.list(|parser| parser.register_names(bits))? {
            registers.extend(names);
        }
        self.expect(";")?;
        Ok(registers)
    }

    /// Takes one name, or `%r<9>`: nine of them.
    fn register_names(&mut self, bits: u32) -> Result<Vec<RegisterName>, ParseError> {
        let line = self.peek().line;
        let name = self.name()?;
        if !self.accept("<") {
            return Ok(vec![RegisterName { name, line, bits }]);
        }
        let count = self.count::<u32>()?;
        self.expect(">")?;
        let numbered = |number| RegisterName { name: format!("{name}{number}"), line, bits };
        Ok((0..count).map(numbered).collect())
    }

    /// Skips `.loc file line column, function_name name, inlined_at file line column`, which no
    /// semicolon ends.
    fn debug_location(&mut self) -> Result<(), ParseError> {
        self.expect(".loc")?;
        let place = |parser: &mut Self| (0..3).try_for_each(|_| parser.integer().map(drop));
        place(self)?;
        if !self.accept(",") {
            return Ok(());
        }
        self.expect("function_name")?;
        self.name()?;
        if self.accept("+") {
            self.integer()?;
        }
        self.expect(",")?;
        self.expect("inlined_at")?;
        place(self)
    }

    /// Takes a label, and the targets of indirect branches if it names some.
    fn label(&mut self) -> Result<Item, ParseError> {
        let line = self.peek().line;
        let name = self.name()?;
        self.expect(":")?;
        if !self.accept(".branchtargets") {
            return Ok(Item::Label { name, line });
        }
        let labels = self.list(Self::name)?;
        self.expect(";")?;
        Ok(Item::Targets { name, line, labels })
    }

    /// Takes an instruction with its guard.
    fn statement(&mut self) -> Result<Statement, ParseError> {
        let first = self.peek();
        let guard = if self.accept("@") { Some(self.guard()?) } else { None };
        let opcode = self.name()?.split('.').map(str::to_owned).collect();
        let operands_at = self.at;
        let operands = self.operands();
        if operands.is_none() {
            self.at = operands_at;
            while self.peek().text != ";" {
                self.skip(";")?;
            }
        }
        let end = self.peek().end();
        self.expect(";")?;
        let words: Vec<&str> = self.text[first.start..end].split_whitespace().collect();
        Ok(Statement { line: first.line, text: words.join(" "), guard, opcode, operands })
    }

    fn guard(&mut self) -> Result<Operand, ParseError> {
        if self.accept("!") {
            self.name().map(Operand::Negated)
        } else {
            self.name().map(Operand::Name)
        }
    }
}
