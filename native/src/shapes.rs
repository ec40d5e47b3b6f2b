//! Shapes: what of an entry decides its type. Python infers the type of each shape once; here it is looked up.
//!
//! The shape of a scalar is its kind, that of an object its keys with the shapes of their values, in whatever order they
//! stand, that of an array the set of its items' shapes: the type of an array is the join of its items', in whatever
//! order and however often. Equal shapes have one number, so that comparing costs nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::json::{is_long53, Cursor, Parsed, Refused, Value};

const PATHS_MAX: usize = 32;
const KEYS_MAX: u64 = 1 << 32;
const KEY_BYTES: usize = 150;
const SHAPE_BYTES: usize = 100;
const PART_BYTES: usize = 8;
const UNKNOWN: u32 = u32::MAX;
const ROOT: usize = 0;
const NOWHERE: usize = usize::MAX; // no path leads on

// Scalars have the first numbers; parts of arrays begin with a word that no object has.
const NULL: u32 = 0;
const BOOL: u32 = 1;
const LONG53: u32 = 2;
const LONG64: u32 = 3;
const DOUBLE: u32 = 4;
const STRING: u32 = 5;
const SCALARS: usize = 6;
const OF_ARRAY: u64 = u64::MAX;

/// A key that paths lead through: where they go on below it, and which end with it, one bit each.
struct Step {
    key: u32,
    ends: u32,
    next: usize,
}

/// Known shapes, and where in an entry the values of paths stand.
pub struct Shapes {
    paths: Vec<Vec<Vec<u8>>>,
    /// The steps of paths from the root and from each key that leads on.
    steps: Vec<Vec<Step>>,
    keys: HashMap<Box<[u8]>, u32>,
    texts: Vec<Box<[u8]>>,
    /// The keys of the entry before, one after the other: most entries have theirs in the same order.
    before: Vec<u32>,
    numbers: HashMap<Box<[u64]>, u32, Seed>,
    /// The number of the type of each shape that is an entry's.
    found: Vec<u32>,
    /// The parts of objects and arrays that are being walked, those of the innermost at the end.
    parts: Vec<u64>,
    bytes: usize,
    bytes_max: usize,
    /// The value of each path in the entry that was walked last.
    pub values: [Option<Value>; PATHS_MAX],
}

impl Shapes {
    /// `paths` are those of an entry, as keys; at most 32. None where there are more.
    pub fn new(paths: Vec<Vec<Vec<u8>>>, bytes_max: usize) -> Option<Self> {
        if paths.len() > PATHS_MAX {
            return None;
        }
        let mut made = Shapes {
            paths,
            steps: Vec::new(),
            keys: HashMap::new(),
            texts: Vec::new(),
            before: Vec::new(),
            numbers: HashMap::with_hasher(Seed(RandomState::new().hash_one(0))),
            found: Vec::new(),
            parts: Vec::new(),
            bytes: 0,
            bytes_max,
            values: [None; PATHS_MAX],
        };
        made.clear();
        Some(made)
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.texts.clear();
        self.before.clear();
        self.numbers.clear();
        self.found = vec![UNKNOWN; SCALARS];
        self.bytes = 0;
        self.steps = vec![Vec::new()];
        for (number, path) in self.paths.clone().iter().enumerate() {
            let mut at = ROOT;
            for (depth, text) in path.iter().enumerate() {
                let key = self.add_key(text);
                let place = self.steps[at].iter().position(|step| step.key == key).unwrap_or_else(|| {
                    self.steps[at].push(Step { key, ends: 0, next: NOWHERE });
                    self.steps[at].len() - 1
                });
                if depth + 1 == path.len() {
                    self.steps[at][place].ends |= 1 << number;
                } else {
                    if self.steps[at][place].next == NOWHERE {
                        self.steps.push(Vec::new());
                        self.steps[at][place].next = self.steps.len() - 1;
                    }
                    at = self.steps[at][place].next;
                }
            }
        }
    }

    /// Forget everything where it is too much; true where that was done. Until then nothing new is learnt.
    pub fn forget_if(&mut self, is_full: bool) -> bool {
        let is_full = is_full || self.bytes > self.bytes_max;
        if is_full {
            self.clear();
        }
        is_full
    }

    /// Walk the entry that begins here, to its end; gives the number of its type, None where that is not known.
    pub fn walk(&mut self, cursor: &mut Cursor) -> Parsed<Option<u32>> {
        let shape = self.entry(cursor)?;
        let found = self.found[shape as usize];
        Ok((found != UNKNOWN).then_some(found))
    }

    /// Remember the type of an entry's shape.
    pub fn learn(&mut self, cursor: &mut Cursor, number: u32) -> Parsed<()> {
        let shape = self.entry(cursor)?;
        cursor.end()?;
        self.found[shape as usize] = number;
        Ok(())
    }

    fn entry(&mut self, cursor: &mut Cursor) -> Parsed<u32> {
        self.values = [None; PATHS_MAX];
        self.parts.clear();
        if cursor.value()? != Value::Object {
            return Err(Refused);
        }
        let mut keys = 0;
        self.object(cursor, ROOT, &mut keys)
    }

    /// `at` are the steps that lead on from here; `keys` counts those of the entry so far.
    fn object(&mut self, cursor: &mut Cursor, at: usize, keys: &mut usize) -> Parsed<u32> {
        let begin = self.parts.len();
        loop {
            let is_first = self.parts.len() == begin;
            let key = match self.before.get(*keys) {
                Some(&key) if cursor.skip_key(is_first, &self.texts[key as usize]) => key,
                _ => match cursor.next_key(is_first)? {
                    Some(text) => self.key(text, *keys)?,
                    None => break,
                },
            };
            *keys += 1;
            let value = cursor.value()?;
            let mut next = NOWHERE;
            if at != NOWHERE {
                if let Some(step) = self.steps[at].iter().find(|step| step.key == key) {
                    next = step.next;
                    let mut ends = step.ends;
                    while ends != 0 {
                        self.values[ends.trailing_zeros() as usize] = Some(value);
                        ends &= ends - 1;
                    }
                }
            }
            let shape = self.shape(cursor, value, next, keys)?;
            self.parts.push(u64::from(key) << 32 | u64::from(shape));
        }
        let parts = &mut self.parts[begin..];
        parts.sort_unstable();
        if parts.windows(2).any(|pair| pair[0] >> 32 == pair[1] >> 32) {
            return Err(Refused); // a key that stands twice: the last one counts
        }
        self.number(begin)
    }

    fn shape(&mut self, cursor: &mut Cursor, value: Value, at: usize, keys: &mut usize) -> Parsed<u32> {
        Ok(match value {
            Value::Null => NULL,
            Value::Bool(_) => BOOL,
            Value::Int(number) if is_long53(number) => LONG53,
            Value::Int(_) => LONG64,
            Value::Double(_) => DOUBLE,
            Value::String { .. } => STRING,
            Value::Object => self.object(cursor, at, keys)?,
            Value::Array => self.array(cursor, keys)?,
        })
    }

    fn array(&mut self, cursor: &mut Cursor, keys: &mut usize) -> Parsed<u32> {
        let begin = self.parts.len();
        let mut is_first = true;
        while cursor.next_item(is_first)? {
            is_first = false;
            let value = cursor.value()?;
            let shape = u64::from(self.shape(cursor, value, NOWHERE, keys)?);
            if !self.parts[begin..].contains(&shape) {
                self.parts.push(shape);
            }
        }
        self.parts[begin..].sort_unstable();
        self.parts.push(OF_ARRAY);
        self.number(begin)
    }

    /// Take the parts from `begin` on, in order: the number of what they make.
    fn number(&mut self, begin: usize) -> Parsed<u32> {
        let parts = &self.parts[begin..];
        let known = self.numbers.get(parts).copied();
        let number = match known {
            Some(number) => number,
            None if self.bytes > self.bytes_max => return Err(Refused),
            None => {
                let number = self.found.len() as u32;
                self.bytes += SHAPE_BYTES + PART_BYTES * parts.len();
                self.numbers.insert(parts.into(), number);
                self.found.push(UNKNOWN);
                number
            }
        };
        self.parts.truncate(begin);
        Ok(number)
    }

    /// The number of a key, which stands at this place among the keys of its entry.
    fn key(&mut self, text: &[u8], place: usize) -> Parsed<u32> {
        let key = match self.keys.get(text) {
            Some(&key) => key,
            None if self.bytes > self.bytes_max || self.texts.len() as u64 >= KEYS_MAX - 1 => return Err(Refused),
            None => self.add_key(text),
        };
        if place < self.before.len() {
            self.before[place] = key;
        } else {
            self.before.push(key);
        }
        Ok(key)
    }

    fn add_key(&mut self, text: &[u8]) -> u32 {
        if let Some(&key) = self.keys.get(text) {
            return key;
        }
        let key = self.texts.len() as u32;
        self.bytes += KEY_BYTES + 2 * text.len();
        self.keys.insert(text.into(), key);
        self.texts.push(text.into());
        key
    }
}

/// Hashes lists of numbers that are our own: nobody outside chooses them, so that a product for each is enough.
#[derive(Clone)]
struct Seed(u64);

struct Words(u64);

impl BuildHasher for Seed {
    type Hasher = Words;

    fn build_hasher(&self) -> Words {
        Words(self.0)
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
