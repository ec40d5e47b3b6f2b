//! The objects around entries: where these stand, what stands beside them, and what of it goes into their rows.

use crate::json::{copy, write_key, Cursor, Parsed, Refused, Value};
use crate::shapes::Shapes;
use crate::types::{Field, Types};

type Keys = Vec<Vec<u8>>;

/// A step from an envelope to its entries: the key that leads on, and what stands beside it in the object entered last.
struct Level {
    key: Vec<u8>,
    is_list: bool,
    /// The paths that lead through this object.
    paths: Vec<usize>,
    /// The other members, where they are kept: JSON, and types.
    text: Vec<u8>,
    fields: Vec<Field>,
    depth: usize,
    /// How many keys are in it and in the objects around it.
    keys: usize,
}

/// What an entry's row gets from around it: how its text ends instead of with `}`, in `Envelope::text`, and a field.
#[derive(Clone, Copy, Default)]
pub struct Around {
    pub text: (usize, usize),
    pub field: Option<Field>,
}

/// The part of an envelope in which entries are looked for.
pub struct Inner {
    pub at: usize,
    pub is_list: bool,
}

/// Reads one envelope after the other.
pub struct Envelope {
    levels: Vec<Level>,
    paths: Vec<Keys>,
    /// The value of each path in the envelope that was entered last; none outside of one.
    pub values: Vec<Option<Value>>,
    /// The key under which rows have the other members, if they have them; and the types of these.
    kept_as: Option<Vec<u8>>,
    shapes: Shapes,
    /// Ends of rows, one after the other, and the last of them, by the number of its levels.
    pub text: Vec<u8>,
    last: Option<(usize, Around)>,
}

impl Envelope {
    /// `steps` are keys, and whether a list is there; a path is the keys that lead to a value beside one.
    pub fn new(steps: Vec<(String, bool)>, paths: Vec<Keys>, kept_as: Option<String>, shapes: Shapes) -> Self {
        let mut levels: Vec<Level> = Vec::new();
        let mut leading: Vec<usize> = (0..paths.len()).collect();
        for (depth, (key, is_list)) in steps.into_iter().enumerate() {
            let key = key.into_bytes();
            let on = leading.iter().copied().filter(|&path| paths[path].len() > depth + 1 && paths[path][depth] == key);
            let on = on.collect();
            let here = std::mem::replace(&mut leading, on);
            levels.push(Level { key, is_list, paths: here, text: Vec::new(), fields: Vec::new(), depth: 0, keys: 0 });
        }
        let (values, kept_as) = (vec![None; paths.len()], kept_as.map(String::into_bytes));
        Envelope { levels, paths, values, kept_as, shapes, text: Vec::new(), last: None }
    }

    /// Begin with types of which nothing is known yet.
    pub fn begin(&mut self, types: &mut Types) {
        self.shapes.begin(types);
    }

    /// How many steps lead to entries.
    pub fn steps(&self) -> usize {
        self.levels.len()
    }

    /// Forget the record before.
    pub fn leave(&mut self) {
        self.text.clear();
        for level in 0..self.levels.len() {
            self.forget(level);
        }
    }

    fn forget(&mut self, level: usize) {
        self.last = None;
        let level = &mut self.levels[level];
        level.text.clear();
        level.fields.clear();
        level.depth = 0;
        for &path in &level.paths {
            self.values[path] = None;
        }
    }

    /// Look in an object for the step that leads on; gives what it leads to, if it is there, and where the object ends.
    pub fn enter(&mut self, text: &[u8], at: usize, level: usize, types: &mut Types) -> Parsed<(Option<Inner>, usize)> {
        self.forget(level);
        self.levels[level].keys = if level > 0 { self.levels[level - 1].keys } else { 0 };
        let mut cursor = Cursor::new(text, at);
        if cursor.value()? != Value::Object {
            return Err(Refused);
        }
        let paths = self.levels[level].paths.clone();
        let found = self.members(&mut cursor, &paths, level, Some(types))?;
        if found.is_none() {
            self.forget(level); // it is an entry
        }
        let is_list = self.levels[level].is_list;
        Ok((found.map(|at| Inner { at, is_list }), cursor.at))
    }

    /// Read the members of an object that `paths` lead through, `depth` keys deep; `types` are given in an envelope itself.
    fn members(
        &mut self, cursor: &mut Cursor, paths: &[usize], depth: usize, mut types: Option<&mut Types>,
    ) -> Parsed<Option<usize>> {
        let mut inner = None;
        let mut seen = Vec::new();
        let mut is_first = true;
        while let Some(key) = cursor.next_key(is_first)? {
            is_first = false;
            cursor.skip_spaces();
            let at = cursor.at;
            let value = cursor.value()?;
            let here: Vec<usize> = paths.iter().copied().filter(|&path| self.paths[path][depth] == key).collect();
            let is_step = types.is_some() && key == self.levels[depth].key;
            if is_step || !here.is_empty() {
                if seen.contains(&key) {
                    return Err(Refused); // the last one counts
                }
                seen.push(key);
            }
            if is_step {
                inner = Some(at);
                cursor.skip(value)?;
                continue;
            }
            let (ends, on): (Vec<usize>, Vec<usize>) = here.into_iter().partition(|&path| self.paths[path].len() == depth + 1);
            for path in ends {
                self.values[path] = Some(value);
            }
            if value == Value::Object && !on.is_empty() {
                self.members(cursor, &on, depth + 1, None)?;
            } else {
                cursor.skip(value)?;
            }
            if let (Some(types), true) = (types.as_deref_mut(), self.kept_as.is_some()) {
                self.keep(key, Cursor::new(cursor.text, at), depth, types)?;
            }
        }
        Ok(inner)
    }

    /// Keep the member of an envelope whose value begins here.
    fn keep(&mut self, key: &[u8], mut cursor: Cursor, level: usize, types: &mut Types) -> Parsed<()> {
        let level = &mut self.levels[level];
        if !level.text.is_empty() {
            level.text.push(b',');
        }
        write_key(key, &mut level.text);
        copy(&mut Cursor::new(cursor.text, cursor.at), &mut level.text)?;
        level.fields.push(self.shapes.member(key, &mut cursor, types, &mut level.keys)?);
        level.depth = level.depth.max(1 + cursor.deepest);
        Ok(())
    }

    /// What stands around an entry to which so many steps led.
    pub fn around(&mut self, steps: usize, types: &mut Types) -> Parsed<Around> {
        match self.last {
            Some((known, around)) if known == steps => Ok(around),
            _ if self.kept_as.is_none() => Ok(Around::default()),
            _ => {
                let around = self.join(steps, types)?;
                self.last = Some((steps, around));
                Ok(around)
            }
        }
    }

    /// Write the members of all objects around an entry as one: each has that within it under its step.
    fn join(&mut self, steps: usize, types: &mut Types) -> Parsed<Around> {
        let innermost = self.levels[..steps].iter().rposition(|one| !one.text.is_empty());
        let (Some(kept_as), Some(innermost)) = (&self.kept_as, innermost) else { return Ok(Around::default()) };
        let start = self.text.len();
        self.text.push(b',');
        write_key(kept_as, &mut self.text);
        for (number, level) in self.levels[..=innermost].iter().enumerate() {
            self.text.push(b'{');
            self.text.extend_from_slice(&level.text);
            if number < innermost {
                if !level.text.is_empty() {
                    self.text.push(b',');
                }
                write_key(&level.key, &mut self.text);
            }
        }
        self.text.resize(self.text.len() + innermost + 2, b'}'); // theirs, and the entry's
        let depth = (0..=innermost).map(|at| at + self.levels[at].depth).max();
        if depth >= Some(types.bounds.json_depth_max) {
            return Err(Refused);
        }
        let mut record = self.shapes.record(types, self.levels[innermost].fields.clone())?;
        for level in self.levels[..innermost].iter().rev() {
            let mut fields = level.fields.clone();
            fields.push((types.key(&level.key), record));
            record = self.shapes.record(types, fields)?;
        }
        Ok(Around { text: (start, self.text.len()), field: Some((types.key(kept_as), record)) })
    }
}
