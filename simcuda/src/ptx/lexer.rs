//! PTX text as tokens (PTX ISA, "Lexical Elements"), each with its line and its place.
//!
//! A word is anything that holds together: an opcode with all its modifiers, a directive, a name, a
//! special register, a number. Called by the parser.

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'text> {
    /// Its characters; empty at the end of the text, with quotes if it is a string.
    pub(super) text: &'text str,
    /// Its line, from 1.
    pub(super) line: u32,
    /// Its first byte in the text.
    pub(super) start: usize,
}

impl Token<'_> {
    /// Returns whether it is a word.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_character)
    }

    /// Returns the byte behind it.
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

fn is_word_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_$%.".contains(character)
}

/// Cuts `text` into tokens; the last is an empty one.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < text.len() {
        let rest = &text[at..];
        let length = token_length(rest);
        let piece = &rest[..length];
        if !is_blank(piece) {
            tokens.push(Token { text: piece, line, start: at });
        }
        line += u32::try_from(piece.matches('\n').count()).unwrap_or(u32::MAX);
        at += length;
    }
    tokens.push(Token { text: "", line, start: text.len() });
    tokens
}

/// Returns whether a piece of text is white space or a comment.
fn is_blank(piece: &str) -> bool {
    piece.starts_with("//") || piece.starts_with("/*") || piece.trim().is_empty()
}

/// Returns the bytes of the token, comment or white space that `rest` starts with.
fn token_length(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    if let Some(string) = rest.strip_prefix('"') {
        return string.find('"').map_or(rest.len(), |end| end + 2);
    }
    if rest.starts_with(char::is_whitespace) {
        return rest.find(|character: char| !character.is_whitespace()).unwrap_or(rest.len());
    }
    if rest.starts_with(is_word_character) {
        return word_length(rest);
    }
    rest.chars().next().map_or(1, char::len_utf8)
}

/// Returns the bytes of a word, which may hold `::` but not the colon of a label.
fn word_length(rest: &str) -> usize {
    let mut length = 0;
    loop {
        let word = &rest[length..];
        length += word.find(|character| !is_word_character(character)).unwrap_or(word.len());
        if !rest[length..].starts_with("::") {
            return length;
        }
        length += 2;
    }
}
