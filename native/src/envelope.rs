//! The object around several entries: where they begin, and what stands beside them.

use crate::json::{Cursor, Parsed, Refused, Value};

type Keys = Vec<Vec<u8>>;

/// Reads one envelope after the other.
pub struct Envelope {
    field: Vec<u8>,
    paths: Vec<Keys>,
    /// The value of each path in the envelope that was entered last; none outside of one.
    pub values: Vec<Option<Value>>,
}

impl Envelope {
    /// `field` has the entries; a path is the keys that lead to a value beside it.
    pub fn new(field: Vec<u8>, paths: Vec<Keys>) -> Self {
        let values = vec![None; paths.len()];
        Envelope { field, paths, values }
    }

    /// Forget the envelope before.
    pub fn leave(&mut self) {
        self.values.fill(None);
    }

    /// Look for the entries of an object; gives where their array begins, None where it is no envelope.
    pub fn enter(&mut self, text: &[u8]) -> Parsed<Option<usize>> {
        let mut cursor = Cursor::new(text, 0);
        if cursor.value()? != Value::Object {
            return Err(Refused);
        }
        let all: Vec<usize> = (0..self.paths.len()).collect();
        let found = self.members(&mut cursor, &all, 0)?;
        cursor.end()?;
        if found.is_none() {
            self.leave(); // it is an entry
        }
        Ok(found)
    }

    /// Read the members of an object that `paths` lead through, `depth` keys deep.
    fn members(&mut self, cursor: &mut Cursor, paths: &[usize], depth: usize) -> Parsed<Option<usize>> {
        let mut entries = None;
        let mut seen = Vec::new();
        let mut is_first = true;
        while let Some(key) = cursor.next_key(is_first)? {
            is_first = false;
            let value = cursor.value()?;
            let here: Vec<usize> = paths.iter().copied().filter(|&path| self.paths[path][depth] == key).collect();
            let is_field = depth == 0 && key == self.field;
            if is_field || !here.is_empty() {
                if seen.contains(&key) {
                    return Err(Refused); // the last one counts
                }
                seen.push(key);
            }
            if is_field {
                if value != Value::Array {
                    return Err(Refused);
                }
                entries = Some(cursor.at - 1);
                cursor.skip(value)?;
                continue;
            }
            let (ends, on): (Vec<usize>, Vec<usize>) = here.into_iter().partition(|&path| self.paths[path].len() == depth + 1);
            for path in ends {
                self.values[path] = Some(value);
            }
            if value == Value::Object && !on.is_empty() {
                self.members(cursor, &on, depth + 1)?;
            } else {
                cursor.skip(value)?;
            }
        }
        Ok(entries)
    }
}
