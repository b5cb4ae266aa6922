//! From tokens to a tree, by recursive descent (PTX ISA, "Directives").
//!
//! A directive that is not known is an error at once: what it means for the rest is not known
//! either. Operands that follow no known form are left to the decoder, which refuses the
//! instruction when it is reached. Called by [`Module::parse`](super::Module::parse).

mod body;
mod operand;

use super::error::{ParseError, Space};
use super::lexer::{Token, tokens};
use super::syntax::{Entry, Text, Variable};

/// The largest variable: far more than any GPU has in these state spaces.
const VARIABLE_BYTES_MAX: u64 = 16 << 20;

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Text, ParseError> {
    let mut parser = Parser { text, tokens: tokens(text), at: 0 };
    let mut parsed = Text::default();
    while !parser.peek().text.is_empty() {
        parser.module_item(&mut parsed)?;
    }
    Ok(parsed)
}

/// The tokens of a text, and how far they are read.
struct Parser<'text> {
    text: &'text str,
    tokens: Vec<Token<'text>>,
    at: usize,
}

impl<'text> Parser<'text> {
    /// Returns the next token; the empty one at the end.
    fn peek(&self) -> Token<'text> {
        self.peek_at(0)
    }

    /// Returns the token `ahead` of the next.
    fn peek_at(&self, ahead: usize) -> Token<'text> {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token<'text> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// Takes the next token if it is `text`.
    fn accept(&mut self, text: &str) -> bool {
        let is_it = self.peek().text == text;
        self.at += usize::from(is_it);
        is_it
    }

    fn unexpected<T>(&self, expected: &'static str) -> Result<T, ParseError> {
        let Token { text, line, .. } = self.peek();
        Err(ParseError::Unexpected { line, expected, found: text.to_owned() })
    }

    fn expect(&mut self, text: &'static str) -> Result<(), ParseError> {
        if self.accept(text) { Ok(()) } else { self.unexpected(text) }
    }

    /// Takes a name of the program's.
    fn name(&mut self) -> Result<String, ParseError> {
        let token = self.peek();
        if !token.is_word() || token.text.starts_with(|first: char| ".0123456789".contains(first)) {
            return self.unexpected("a name");
        }
        Ok(self.next().text.to_owned())
    }

    /// Takes an integer, with its sign if it has one.
    fn integer(&mut self) -> Result<i128, ParseError> {
        let is_negative = self.accept("-");
        let Some(value) = integer_literal(self.peek().text) else {
            return self.unexpected("an integer");
        };
        self.at += 1;
        Ok(if is_negative { -value } else { value })
    }

    /// Takes an integer that counts something.
    fn count<T: TryFrom<i128>>(&mut self) -> Result<T, ParseError> {
        let at = self.at;
        let value = self.integer()?;
        T::try_from(value).or_else(|_| {
            self.at = at;
            self.unexpected("a count")
        })
    }

    /// Takes what a comma may be before, once or more often.
    fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut items = vec![item(self)?];
        while self.accept(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn module_item(&mut self, parsed: &mut Text) -> Result<(), ParseError> {
        let token = self.peek();
        match token.text {
            ".version" => {
                self.at += 1;
                // 7.4 is one word.
                self.at += 1;
            }
            ".target" => {
                self.at += 1;
                self.list(Self::name)?;
            }
            ".address_size" => {
                self.at += 1;
                self.expect("64")?;
            }
            ".visible" | ".weak" => self.at += 1,
            ".entry" => parsed.entries.push(self.entry()?),
            ".shared" | ".const" => {
                parsed.variables.push(self.variable()?);
                self.expect(";")?;
            }
            ".file" => self.debug_file()?,
            ".section" => self.debug_section()?,
            _ => return self.unknown(),
        }
        Ok(())
    }

    /// Refuses the next token.
    fn unknown<T>(&self) -> Result<T, ParseError> {
        let Token { text, line, .. } = self.peek();
        if text.starts_with('.') {
            return Err(ParseError::UnknownDirective { line, directive: text.to_owned() });
        }
        self.unexpected("a directive")
    }

    /// Skips `.file 1 "name", time, size`.
    fn debug_file(&mut self) -> Result<(), ParseError> {
        self.expect(".file")?;
        self.integer()?;
        if !self.next().text.starts_with('"') {
            self.at -= 1;
            return self.unexpected("a string");
        }
        while self.accept(",") {
            self.integer()?;
        }
        Ok(())
    }

    /// Skips `.section .name { data }`, which holds debug information.
    fn debug_section(&mut self) -> Result<(), ParseError> {
        self.expect(".section")?;
        if !self.peek().text.starts_with(".debug") {
            return self.unexpected("a section of debug information");
        }
        self.at += 1;
        self.expect("{")?;
        while !self.accept("}") {
            if self.peek().text.is_empty() {
                return self.unexpected("}");
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Takes an entry from its directive to the end of its body.
    fn entry(&mut self) -> Result<Entry, ParseError> {
        self.expect(".entry")?;
        let line = self.peek().line;
        let name = self.name()?;
        self.expect("(")?;
        let parameters =
            if self.peek().text == ")" { Vec::new() } else { self.list(Self::variable)? };
        self.expect(")")?;
        let mut threads_max = None;
        while self.peek().text != "{" {
            match self.peek().text {
                ".maxntid" | ".reqntid" => {
                    self.at += 1;
                    let axes = self.list(Self::count::<u32>)?;
                    threads_max = Some(axes.into_iter().fold(1, u32::saturating_mul));
                }
                // About registers and speed, not about meaning.
                ".minnctapersm" | ".maxnreg" => {
                    self.at += 1;
                    self.count::<u32>()?;
                }
                _ => return self.unknown(),
            }
        }
        let body = self.block()?;
        let end_line = self.tokens[self.at - 1].line;
        Ok(Entry { name, line, parameters, threads_max, body, end_line })
    }

    /// Takes the declaration of a variable or parameter, up to its comma or semicolon.
    fn variable(&mut self) -> Result<Variable, ParseError> {
        let Token { text: space, line, .. } = self.peek();
        let Some(space) = variable_space(space) else { return self.unknown() };
        self.at += 1;
        let (mut align_bytes, mut element_bytes) = (None, None);
        while self.peek().text.starts_with('.') {
            match self.peek().text {
                ".align" => {
                    self.at += 1;
                    align_bytes = Some(self.count::<u64>()?);
                }
                ".ptr" => self.pointer_attributes()?,
                directive => {
                    let Some(bits) = declared_bits(directive).filter(|bits| *bits >= 8) else {
                        return self.unknown();
                    };
                    self.at += 1;
                    element_bytes = Some(u64::from(bits / 8));
                }
            }
        }
        let Some(element_bytes) = element_bytes else { return self.unexpected("a type") };
        let name = self.name()?;
        let mut count = 1;
        while self.accept("[") {
            count = self.count::<u64>()?.saturating_mul(count);
            self.expect("]")?;
        }
        if count.saturating_mul(element_bytes) > VARIABLE_BYTES_MAX {
            return self.unexpected("a variable of at most 16 MiB");
        }
        let initial = if self.accept("=") { self.initialiser()? } else { Vec::new() };
        let align_bytes = align_bytes.unwrap_or(element_bytes);
        Ok(Variable { name, line, space, align_bytes, element_bytes, count, initial })
    }

    /// Skips `.ptr .global .align 16`: what a parameter points to.
    fn pointer_attributes(&mut self) -> Result<(), ParseError> {
        self.expect(".ptr")?;
        if matches!(self.peek().text, ".global" | ".shared" | ".local" | ".const") {
            self.at += 1;
        }
        if self.accept(".align") {
            self.count::<u64>()?;
        }
        Ok(())
    }

    /// Takes a variable's first elements.
    fn initialiser(&mut self) -> Result<Vec<i128>, ParseError> {
        if !self.accept("{") {
            return Ok(vec![self.integer()?]);
        }
        let elements = self.list(Self::integer)?;
        self.expect("}")?;
        Ok(elements)
    }
}

/// Returns the state space that a declaration starts with.
fn variable_space(directive: &str) -> Option<Space> {
    match directive {
        ".param" => Some(Space::Param),
        ".shared" => Some(Space::Shared),
        ".const" => Some(Space::Const),
        ".local" => Some(Space::Local),
        _ => None,
    }
}

/// Returns the width of a declared type; 1 for predicates. Floats are bits as long as no
/// instruction takes them for more.
fn declared_bits(directive: &str) -> Option<u32> {
    match directive {
        ".pred" => Some(1),
        ".b8" | ".u8" | ".s8" => Some(8),
        ".b16" | ".u16" | ".s16" | ".f16" => Some(16),
        ".b32" | ".u32" | ".s32" | ".f32" => Some(32),
        ".b64" | ".u64" | ".s64" | ".f64" => Some(64),
        _ => None,
    }
}

/// Reads an integer literal (PTX ISA, "Integer Constants"), without a sign.
fn integer_literal(text: &str) -> Option<i128> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok().map(i128::from)
}
