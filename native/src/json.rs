//! JSON text, strictly: a cursor that tells what stands where, and refuses whatever Python has to look at.
//!
//! Refused are texts that are no JSON, and what `log_partitioner.input.json_text` treats in a way of its own: numbers that a
//! double does not hold, integers of more than 64 bits, `-0`, surrogates that stand alone, keys with escapes.

use std::io::Write;

/// Why a text is given back: Python looks at it.
#[derive(Debug)]
pub struct Refused;

pub type Parsed<T> = Result<T, Refused>;

const DEPTH_MAX: usize = 64;
const INT_DIGITS_MAX: usize = 19; // a u64 holds them all
const LONG53_MAX: u64 = 1 << 53;
const EXACT_CHARS: usize = 16; // 15 significant digits and a point: every decimal of that length survives a double,
const EXACT_FROM: f64 = 2.3e-308; // from here on: smaller ones have fewer bits
const DECIMAL: std::ops::Range<f64> = 1e-4..1e16; // doubles that are written without an exponent, here as elsewhere

/// A scalar as it stands in the text, or the beginning of what has parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    /// The text between the quotes is [start, end).
    String { start: usize, end: usize, is_escaped: bool },
    Object,
    Array,
}

/// Whether an integer is one that a double holds, too.
pub fn is_long53(value: i64) -> bool {
    value.unsigned_abs() <= LONG53_MAX
}

/// A position in a text that is known to be UTF-8.
pub struct Cursor<'a> {
    pub text: &'a [u8],
    pub at: usize,
    depth: usize,
    /// The greatest depth since `measure`.
    pub deepest: usize,
    /// Whether numbers that a double does not hold are taken, rounded.
    is_rounding: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8], at: usize) -> Self {
        Cursor { text, at, depth: 0, deepest: 0, is_rounding: false }
    }

    /// Read a text that was read before: what its numbers lose was seen to then.
    pub fn again(text: &'a [u8], at: usize) -> Self {
        Cursor { text, at, depth: 0, deepest: 0, is_rounding: true }
    }

    /// Begin to look for the greatest depth; gives the one here.
    pub fn measure(&mut self) -> usize {
        self.deepest = self.depth;
        self.depth
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.peek() != Some(byte) {
            return Err(Refused);
        }
        self.at += 1;
        Ok(())
    }

    /// Read a value that begins here, spaces before it skipped; of an object or array its bracket alone.
    pub fn value(&mut self) -> Parsed<Value> {
        self.skip_spaces();
        match self.peek() {
            Some(b'"') => {
                let (start, end, is_escaped) = self.string()?;
                Ok(Value::String { start, end, is_escaped })
            }
            Some(b'{') => self.enter(Value::Object),
            Some(b'[') => self.enter(Value::Array),
            Some(b't') => self.literal(b"true", Value::Bool(true)),
            Some(b'f') => self.literal(b"false", Value::Bool(false)),
            Some(b'n') => self.literal(b"null", Value::Null),
            _ => self.number(),
        }
    }

    fn enter(&mut self, value: Value) -> Parsed<Value> {
        self.at += 1;
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        if self.depth > DEPTH_MAX {
            return Err(Refused);
        }
        Ok(value)
    }

    fn literal(&mut self, text: &[u8], value: Value) -> Parsed<Value> {
        if !self.text[self.at..].starts_with(text) {
            return Err(Refused);
        }
        self.at += text.len();
        Ok(value)
    }

    /// Go to the next part of what `closing` ends; false behind its end. `is_first` at the part that is the first.
    fn next_part(&mut self, is_first: bool, closing: u8) -> Parsed<bool> {
        self.skip_spaces();
        if self.peek() == Some(closing) {
            self.at += 1;
            self.depth = self.depth.saturating_sub(1); // it may have begun inside
            return Ok(false);
        }
        if !is_first {
            self.expect(b',')?;
            self.skip_spaces();
        }
        Ok(true)
    }

    /// Go to the next item of an array, and stand before it; false behind the end.
    pub fn next_item(&mut self, is_first: bool) -> Parsed<bool> {
        self.next_part(is_first, b']')
    }

    /// Read the next key of an object, and stand before its value; None behind the end.
    pub fn next_key(&mut self, is_first: bool) -> Parsed<Option<&'a [u8]>> {
        if !self.next_part(is_first, b'}')? {
            return Ok(None);
        }
        let (start, end, is_escaped) = self.string()?;
        self.skip_spaces();
        self.expect(b':')?;
        if is_escaped {
            return Err(Refused);
        }
        Ok(Some(&self.text[start..end]))
    }

    /// Read the next key of an object if it is this one, in a usual form; else false, and nothing is read.
    ///
    /// A known key is compared where it would be looked for; it stands in texts as it is, without escapes.
    pub fn skip_key(&mut self, is_first: bool, key: &[u8]) -> bool {
        let mut rest = &self.text[self.at..];
        if !is_first {
            let Some((b',', behind)) = rest.split_first() else { return false };
            rest = behind.strip_prefix(b" ").unwrap_or(behind);
        }
        let Some(behind) = rest.strip_prefix(b"\"").and_then(|rest| rest.strip_prefix(key)) else { return false };
        let Some(behind) = behind.strip_prefix(b"\":") else { return false };
        self.at = self.text.len() - behind.len();
        true
    }

    /// Skip what is left of an object or array whose bracket `value` has read.
    pub fn skip(&mut self, value: Value) -> Parsed<()> {
        let mut is_first = true;
        match value {
            Value::Object => {
                while self.next_key(is_first)?.is_some() {
                    is_first = false;
                    let inner = self.value()?;
                    self.skip(inner)?;
                }
            }
            Value::Array => {
                while self.next_item(is_first)? {
                    is_first = false;
                    let inner = self.value()?;
                    self.skip(inner)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Require that nothing but spaces follows.
    pub fn end(&mut self) -> Parsed<()> {
        self.skip_spaces();
        if self.at == self.text.len() { Ok(()) } else { Err(Refused) }
    }

    fn string(&mut self) -> Parsed<(usize, usize, bool)> {
        self.expect(b'"')?;
        let start = self.at;
        let mut is_escaped = false;
        loop {
            self.at += plain_chars(&self.text[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok((start, self.at - 1, is_escaped));
                }
                Some(b'\\') => {
                    is_escaped = true;
                    self.escape()?;
                }
                _ => return Err(Refused), // a control character, or the end
            }
        }
    }

    fn escape(&mut self) -> Parsed<()> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => {
                let (_, length) = unicode(self.text, self.at)?;
                self.at += length;
                Ok(())
            }
            _ => Err(Refused),
        }
    }

    fn number(&mut self) -> Parsed<Value> {
        let start = self.at;
        let is_negative = self.peek() == Some(b'-');
        self.at += usize::from(is_negative);
        let first = self.at;
        let magnitude = self.digits()?;
        let digits = self.at - first;
        if digits > 1 && self.text[first] == b'0' {
            return Err(Refused);
        }
        let is_double = matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if !is_double {
            if digits > INT_DIGITS_MAX || (is_negative && magnitude == 0) {
                return Err(Refused);
            }
            let number = if is_negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
            return number.map(Value::Int).ok_or(Refused);
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).map_err(|_| Refused)?;
        let value: f64 = text.parse().map_err(|_| Refused)?;
        let is_surely_exact = text.len() <= EXACT_CHARS && value.abs() >= EXACT_FROM && value.is_finite();
        if self.is_rounding || is_surely_exact || holds(value, text) { Ok(Value::Double(value)) } else { Err(Refused) }
    }

    /// Skip digits, at least one; the number that they make is right up to 19 of them.
    fn digits(&mut self) -> Parsed<u64> {
        let start = self.at;
        let mut number: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        if self.at == start { Err(Refused) } else { Ok(number) }
    }
}

/// How many bytes at the beginning are neither a quote nor a backslash nor a control character; eight at a time.
fn plain_chars(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut at = 0;
    while let Some(bytes) = text.get(at..at + 8) {
        let word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let below = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let found = has_zero(word ^ (ONES * 0x22)) | has_zero(word ^ (ONES * 0x5c)) | below;
        if found != 0 {
            break; // a borrow may have set a byte too many: look at them one by one
        }
        at += 8;
    }
    while at < text.len() && !matches!(text[at], b'"' | b'\\' | 0..=0x1f) {
        at += 1;
    }
    at
}

/// Read `\uXXXX` at a backslash, with its second half where it has one; gives the character, and the bytes it takes.
fn unicode(text: &[u8], at: usize) -> Parsed<(char, usize)> {
    let unit = |at: usize| -> Parsed<u32> {
        let digits = text.get(at + 2..at + 6).ok_or(Refused)?;
        if text[at] != b'\\' || text[at + 1] != b'u' || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(Refused);
        }
        let digits = std::str::from_utf8(digits).map_err(|_| Refused)?;
        u32::from_str_radix(digits, 16).map_err(|_| Refused)
    };
    let high = unit(at)?;
    if let Some(found) = char::from_u32(high) {
        return Ok((found, 6));
    }
    let low = unit(at + 6)?;
    if !(0xd800..0xdc00).contains(&high) || !(0xdc00..0xe000).contains(&low) {
        return Err(Refused);
    }
    let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(code).map(|found| (found, 12)).ok_or(Refused)
}

/// Append the characters that a string's text stands for; `text` is what a cursor has read, without its quotes.
pub fn unescape(text: &[u8], out: &mut Vec<u8>) -> Parsed<()> {
    let mut at = 0;
    while at < text.len() {
        let plain = text[at..].iter().position(|&byte| byte == b'\\').unwrap_or(text.len() - at);
        out.extend_from_slice(&text[at..at + plain]);
        at += plain;
        let Some(kind) = text.get(at + 1) else { break };
        let (found, length) = match kind {
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'n' => ('\n', 2),
            b'r' => ('\r', 2),
            b't' => ('\t', 2),
            b'u' => unicode(text, at)?,
            other => (char::from(*other), 2),
        };
        out.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
        at += length;
    }
    Ok(())
}

/// Append the value that begins here as `log_partitioner.formats.values.encode_json` writes it.
pub fn copy(cursor: &mut Cursor, out: &mut Vec<u8>) -> Parsed<()> {
    cursor.skip_spaces();
    let begin = cursor.at;
    let mut is_first = true;
    match cursor.value()? {
        Value::Double(number) if number == 0.0 || DECIMAL.contains(&number.abs()) => {
            write!(out, "{number:?}").map_err(|_| Refused)?;
        }
        Value::Double(_) => return Err(Refused),
        Value::String { start, end, is_escaped: true } => write_string(&cursor.text[start..end], out)?,
        Value::Object => {
            out.push(b'{');
            while let Some(key) = cursor.next_key(is_first)? {
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                write_key(key, out);
                copy(cursor, out)?;
            }
            out.push(b'}');
        }
        Value::Array => {
            out.push(b'[');
            while cursor.next_item(is_first)? {
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                copy(cursor, out)?;
            }
            out.push(b']');
        }
        _ => out.extend_from_slice(&cursor.text[begin..cursor.at]),
    }
    Ok(())
}

/// Append a key that needs no escapes.
pub fn write_key(key: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
}

/// Append a string with escapes in its text: with those alone that it needs.
fn write_string(text: &[u8], out: &mut Vec<u8>) -> Parsed<()> {
    let mut plain = Vec::with_capacity(text.len());
    unescape(text, &mut plain)?;
    out.push(b'"');
    for &byte in &plain {
        let escaped = match byte {
            b'"' | b'\\' => byte,
            0x8 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0xc => b'f',
            b'\r' => b'r',
            0..=0x1f => {
                write!(out, "\\u{byte:04x}").map_err(|_| Refused)?;
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
    out.push(b'"');
    Ok(())
}

/// Whether a double is exactly the number of its literal: whether its shortest digits are the literal's.
fn holds(value: f64, text: &str) -> bool {
    let mut shortest = [0; 32]; // a sign, 17 digits, a point, an exponent of three digits
    let mut rest = &mut shortest[..];
    let is_written = value.is_finite() && write!(rest, "{value:e}").is_ok();
    let length = 32 - rest.len();
    is_written && decimal(text.as_bytes()) == decimal(&shortest[..length])
}

/// The digits of a literal without zeros at their ends, as one number, and the power of ten of the last one.
///
/// None where they are more than 19: no double has so many.
fn decimal(text: &[u8]) -> Option<(u64, i64)> {
    let (mut number, mut zeros) = (0_u64, 0); // zeros that may be the last digits
    let (mut digits, mut last, mut whole) = (0, 0, None); // how many were read, of the last but zeros, before the point
    let mut exponent: &[u8] = b"0";
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'0' => {
                zeros += u32::from(number > 0);
                digits += 1;
            }
            b'1'..=b'9' => {
                number = number.checked_mul(10_u64.checked_pow(zeros + 1)?)?.checked_add(u64::from(byte - b'0'))?;
                (zeros, last) = (0, digits);
                digits += 1;
            }
            b'.' => whole = Some(digits),
            b'e' | b'E' => {
                exponent = &text[at + 1..];
                break;
            }
            _ => {} // the sign
        }
    }
    if number == 0 {
        return Some((0, 0));
    }
    let exponent: i64 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
    Some((number, exponent.checked_add(whole.unwrap_or(digits) - 1 - last)?))
}
