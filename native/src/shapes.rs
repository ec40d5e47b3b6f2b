//! The type of an entry, found as its text is walked, and the values that paths lead to.
//!
//! The walk makes the type that an entry has before any rule by position or size, from the innermost outwards: it is
//! looked up by its parts. By `Types::entry_type` each such type becomes an entry's, once.

use std::collections::HashMap;

use crate::json::{is_long53, Cursor, Parsed, Refused, Value};
use crate::types::{Field, Seed, Types, BOOL, DOUBLE, LONG53, LONG64, NULL, STRING};

const PATHS_MAX: usize = 32;
const ROOT: usize = 0;
const NOWHERE: usize = usize::MAX; // no path leads on

/// A key that paths lead through: where they go on below it, and which end with it, one bit each.
struct Step {
    key: u32,
    ends: u32,
    next: usize,
}

/// Known types of entries, and where in an entry the values of paths stand.
pub struct Shapes {
    paths: Vec<Vec<Vec<u8>>>,
    /// The steps of paths from the root and from each key that leads on.
    steps: Vec<Vec<Step>>,
    /// The keys of the entry before, one after the other: most entries have theirs in the same order.
    before: Vec<u32>,
    /// The fields of objects and the items of arrays that are being walked, those of the innermost at the end.
    fields: Vec<Field>,
    items: Vec<u32>,
    /// The types of entries by what they are in their text, and by what their rows get from around them.
    entry_types: HashMap<(u32, u32), u32, Seed>,
    bytes_max: usize,
    /// The value of each path in the entry that was walked last.
    pub values: [Option<Value>; PATHS_MAX],
}

impl Shapes {
    /// `paths` are those of an entry, as keys; at most 32. None where there are more.
    pub fn new(paths: Vec<Vec<Vec<u8>>>, bytes_max: usize) -> Option<Self> {
        (paths.len() <= PATHS_MAX).then(|| Shapes {
            paths,
            steps: Vec::new(),
            before: Vec::new(),
            fields: Vec::new(),
            items: Vec::new(),
            entry_types: HashMap::default(),
            bytes_max,
            values: [None; PATHS_MAX],
        })
    }

    /// Begin with types of which nothing is known yet.
    pub fn begin(&mut self, types: &mut Types) {
        self.before.clear();
        self.entry_types.clear();
        self.steps = vec![Vec::new()];
        for (number, path) in self.paths.iter().enumerate() {
            let mut at = ROOT;
            for (depth, text) in path.iter().enumerate() {
                let key = types.key(text);
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

    /// Walk the entry that begins here, to its end; gives its type, with what its row gets from `around` it.
    pub fn walk(&mut self, cursor: &mut Cursor, types: &mut Types, around: Option<Field>) -> Parsed<u32> {
        self.values = [None; PATHS_MAX];
        self.fields.clear();
        self.items.clear();
        let above = cursor.measure();
        if cursor.value()? != Value::Object {
            return Err(Refused);
        }
        let raw = self.object(cursor, types, ROOT, &mut 0)?;
        if cursor.deepest - above > types.bounds.json_depth_max {
            return Err(Refused);
        }
        let parts = (raw, around.map_or(NULL, |field| field.1));
        if let Some(&known) = self.entry_types.get(&parts) {
            return Ok(known);
        }
        let whole = match around {
            Some(field) => {
                let mut fields = types.fields(raw).to_vec();
                fields.push(field);
                self.record(types, fields)?
            }
            None => raw,
        };
        let found = types.entry_type(whole)?;
        self.entry_types.insert(parts, found);
        Ok(found)
    }

    /// Walk the value of a key, both beside entries; `keys` counts those that stood before.
    pub fn member(&mut self, key: &[u8], cursor: &mut Cursor, types: &mut Types, keys: &mut usize) -> Parsed<Field> {
        self.fields.clear();
        self.items.clear();
        let key = self.key(types, key, *keys)?;
        *keys += 1;
        let value = cursor.value()?;
        Ok((key, self.child(cursor, types, value, NOWHERE, keys)?))
    }

    /// The record of these fields.
    pub fn record(&self, types: &mut Types, mut fields: Vec<Field>) -> Parsed<u32> {
        record(types, &mut fields, self.bytes_max)
    }

    /// `at` are the steps that lead on from here; `keys` counts those of the entry so far.
    fn object(&mut self, cursor: &mut Cursor, types: &mut Types, at: usize, keys: &mut usize) -> Parsed<u32> {
        let begin = self.fields.len();
        loop {
            let is_first = self.fields.len() == begin;
            let key = match self.before.get(*keys) {
                Some(&key) if cursor.skip_key(is_first, types.keys.text(key)) => key,
                _ => match cursor.next_key(is_first)? {
                    Some(text) => self.key(types, text, *keys)?,
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
            let child = self.child(cursor, types, value, next, keys)?;
            self.fields.push((key, child));
        }
        let made = record(types, &mut self.fields[begin..], self.bytes_max)?;
        self.fields.truncate(begin);
        Ok(made)
    }

    #[inline(always)] // else each value of an entry costs a call more
    fn child(&mut self, cursor: &mut Cursor, types: &mut Types, value: Value, at: usize, keys: &mut usize) -> Parsed<u32> {
        Ok(match value {
            Value::Null => NULL,
            Value::Bool(_) => BOOL,
            Value::Int(number) if is_long53(number) => LONG53,
            Value::Int(_) => LONG64,
            Value::Double(_) => DOUBLE,
            Value::String { .. } => STRING,
            Value::Object => self.object(cursor, types, at, keys)?,
            Value::Array => self.array(cursor, types, keys)?,
        })
    }

    fn array(&mut self, cursor: &mut Cursor, types: &mut Types, keys: &mut usize) -> Parsed<u32> {
        let begin = self.items.len();
        let mut is_first = true;
        while cursor.next_item(is_first)? {
            is_first = false;
            let value = cursor.value()?;
            let item = self.child(cursor, types, value, NOWHERE, keys)?;
            if !self.items[begin..].contains(&item) {
                self.items.push(item);
            }
        }
        let item = types.join_all(self.items[begin..].to_vec());
        self.items.truncate(begin);
        Ok(types.array(item))
    }

    /// The number of a key, which stands at this place among the keys of its entry.
    fn key(&mut self, types: &mut Types, text: &[u8], place: usize) -> Parsed<u32> {
        let key = match types.keys.find(text) {
            Some(key) => key,
            None if types.memory_bytes > self.bytes_max => return Err(Refused),
            None => types.key(text),
        };
        if place < self.before.len() {
            self.before[place] = key;
        } else {
            self.before.push(key);
        }
        Ok(key)
    }
}

/// The record of these fields, which are sorted here; none is new once types take `bytes_max`.
fn record(types: &mut Types, fields: &mut [Field], bytes_max: usize) -> Parsed<u32> {
    fields.sort_unstable();
    if fields.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Refused); // a key that stands twice: the last one counts
    }
    match types.find_record(fields) {
        Some(known) => Ok(known),
        None if types.memory_bytes > bytes_max => Err(Refused),
        None => Ok(types.record(fields)),
    }
}
