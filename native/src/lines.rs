//! Blocks of parts -> the lines that announce them: what `log_partitioner.batch.reference_lines` writes of the same parts.

use std::collections::HashMap;
use std::io::Write;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use crate::types::Types;

/// The blocks of one part, `length` bytes, and what is in them: counted as they were written.
pub struct Blocks {
    user: PyBackedStr,
    hour: u32,
    exact_type: u32,
    pub length: usize,
    pub rows: usize,
    earliest_us: i64,
    latest_us: i64,
    /// TopicPartition, lowest and highest offset, rows.
    sources: Vec<Source>,
}

type Source = (u32, i64, i64, usize);

impl Blocks {
    pub fn new(user: PyBackedStr, hour: u32, exact_type: u32) -> Self {
        Blocks {
            user,
            hour,
            exact_type,
            length: 0,
            rows: 0,
            earliest_us: 0,
            latest_us: 0,
            sources: Vec::new(),
        }
    }

    /// Count a row of a TopicPartition, by its number in the batch.
    pub fn add(&mut self, tp: u32, offset: i64, time_us: i64) {
        let is_first = self.rows == 0;
        self.earliest_us = if is_first { time_us } else { self.earliest_us.min(time_us) };
        self.latest_us = if is_first { time_us } else { self.latest_us.max(time_us) };
        self.rows += 1;
        match self.sources.iter_mut().find(|one| one.0 == tp) {
            Some(one) => *one = (tp, one.1.min(offset), one.2.max(offset), one.3 + 1),
            None => self.sources.push((tp, offset, offset, 1)),
        }
    }
}

/// Blocks that were written at once, those of one part behind those of the other.
#[pyclass(frozen)]
pub struct Chunk {
    #[pyo3(get)]
    data: Py<PyBytes>,
    /// How many rows are in it.
    #[pyo3(get)]
    rows: usize,
    parts: Vec<Blocks>,
}

impl Chunk {
    pub fn new(data: Py<PyBytes>, parts: Vec<Blocks>) -> Self {
        Chunk { data, rows: parts.iter().map(|blocks| blocks.rows).sum(), parts }
    }
}

#[pymethods]
impl Chunk {
    /// How many parts are in it.
    fn __len__(&self) -> usize {
        self.parts.len()
    }

    /// What `log_partitioner.batch.row_writer.Blocks` says of one part.
    #[allow(clippy::type_complexity)]
    fn blocks(&self, number: usize) -> (&str, u32, u32, usize, usize, i64, i64, Vec<Source>) {
        let Blocks { user, hour, exact_type, length, rows, earliest_us, latest_us, sources } = &self.parts[number];
        (user, *hour, *exact_type, *length, *rows, *earliest_us, *latest_us, sources.clone())
    }

    /// Of parts [first, last) those that fit into so many bytes: the number behind them, and their bytes.
    fn fitting(&self, first: usize, last: usize, room: usize) -> (usize, usize) {
        let mut size = 0;
        for (number, blocks) in self.parts[..last].iter().enumerate().skip(first) {
            if size + blocks.length > room {
                return (number, size);
            }
            size += blocks.length;
        }
        (last, size)
    }

    /// How many rows of parts [first, last) are of which TopicPartition.
    fn rows_of(&self, first: usize, last: usize) -> Vec<(u32, usize)> {
        let mut found: Vec<(u32, usize)> = Vec::new();
        for &(tp, _, _, rows) in self.parts[first..last].iter().flat_map(|blocks| &blocks.sources) {
            match found.iter_mut().find(|one| one.0 == tp) {
                Some(one) => one.1 += rows,
                None => found.push((tp, rows)),
            }
        }
        found
    }
}

/// What lines cost in a message beside their own bytes, and how large they may be together.
#[derive(FromPyObject, Clone)]
#[pyo3(from_item_all)]
struct LineRules {
    bytes_max: usize,
    hour_bytes: usize,
    /// By TopicPartition: what it costs, where its span begins, its place among all in order.
    source_bytes: Vec<usize>,
    span_starts: Vec<i64>,
    ranks: Vec<u32>,
}

/// The lines of one object that holds several parts; `groups` takes them apart by message.
#[pyclass]
pub struct Lines {
    rules: LineRules,
    types: Py<Types>,
    /// The type of the object.
    merged: u32,
    /// How many there are.
    #[pyo3(get)]
    lines: usize,
    group: Group,
    ended: Vec<Group>,
}

/// Lines that go into one message, and the lists that they point into.
#[derive(Default)]
struct Group {
    size: usize,
    event_time_us: i64,
    /// TopicPartition, rows named.
    sources: Vec<(u32, usize)>,
    source_of: HashMap<u32, usize>,
    hours: Vec<u32>,
    hour_of: HashMap<u32, usize>,
    schemas: Vec<Vec<u8>>,
    schema_of: HashMap<Vec<u8>, usize>,
    /// The number of a type's projection.
    schema_of_type: HashMap<u32, usize>,
    count: usize,
    lines: Vec<u8>,
}

/// TopicPartitions and rows named, earliest time of the first line, hours, schemas, how many lines, and the list of those.
type Ended = (Vec<(u32, usize)>, i64, Vec<u32>, Vec<Py<PyBytes>>, usize, Py<PyBytes>);

#[pymethods]
impl Lines {
    #[new]
    fn new(rules: LineRules, types: Py<Types>, merged: u32) -> Self {
        Lines { rules, types, merged, lines: 0, group: Group::default(), ended: Vec::new() }
    }

    /// Write the lines of parts [first, last), whose blocks stand from `start` on.
    fn add(&mut self, py: Python<'_>, chunk: &Chunk, first: usize, last: usize, start: usize) {
        let mut start = start;
        for blocks in &chunk.parts[first..last] {
            self.add_line(py, blocks, start);
            start += blocks.length;
        }
    }

    /// Give all lines, in their order; they are gone then.
    fn groups(&mut self, py: Python<'_>) -> Vec<Ended> {
        self.end();
        let ended = std::mem::take(&mut self.ended);
        ended
            .into_iter()
            .map(|group| {
                let lines = PyBytes::new(py, &group.lines).unbind();
                let schemas = group.schemas.iter().map(|schema| PyBytes::new(py, schema).unbind()).collect();
                (group.sources, group.event_time_us, group.hours, schemas, group.count, lines)
            })
            .collect()
    }
}

impl Lines {
    fn end(&mut self) {
        let mut group = std::mem::take(&mut self.group);
        if group.count > 0 {
            group.lines.push(b']');
            self.ended.push(group);
        }
    }

    fn add_line(&mut self, py: Python<'_>, blocks: &Blocks, start: usize) {
        let before = self.group.mark();
        let mut line = self.line(py, blocks, start);
        if self.group.count > 0 && self.group.size + line.len() > self.rules.bytes_max {
            self.group.forget(before);
            self.end();
            line = self.line(py, blocks, start);
        }
        let group = &mut self.group;
        group.lines.push(if group.count == 0 { b'[' } else { b',' });
        group.lines.extend_from_slice(&line);
        for &(tp, _, _, rows) in &blocks.sources {
            group.sources[group.source_of[&tp]].1 += rows;
        }
        group.count += 1;
        group.size += line.len() + 1;
        self.lines += 1;
    }

    fn line(&mut self, py: Python<'_>, blocks: &Blocks, start: usize) -> Vec<u8> {
        let schema = self.schema(py, blocks.exact_type);
        let (group, rules) = (&mut self.group, &self.rules);
        if group.count == 0 {
            group.event_time_us = blocks.earliest_us;
        }
        let hour = number(&mut group.hour_of, &mut group.hours, blocks.hour, blocks.hour, || rules.hour_bytes, &mut group.size);
        let mut sources = blocks.sources.clone();
        sources.sort_unstable_by_key(|one| rules.ranks[one.0 as usize]);
        let mut line = Vec::with_capacity(128);
        line.push(b'[');
        quote(&blocks.user, &mut line);
        let times = (blocks.earliest_us - group.event_time_us, blocks.latest_us - blocks.earliest_us);
        put(&mut line, format_args!(",{hour},{},{},{},{schema},", blocks.rows, times.0, times.1));
        put(&mut line, format_args!("{start},{},", blocks.length));
        for &(tp, ..) in &sources {
            let size = || rules.source_bytes[tp as usize];
            number(&mut group.source_of, &mut group.sources, tp, (tp, 0), size, &mut group.size);
        }
        write_list(&mut line, &sources, |line, &(tp, low, high, rows)| {
            let from_start = low - rules.span_starts[tp as usize];
            put(line, format_args!("{},{from_start},{},{rows}", group.source_of[&tp], high - low));
        });
        line.push(b']');
        line
    }

    /// The number of a type's projection in the group.
    fn schema(&mut self, py: Python<'_>, exact_type: u32) -> usize {
        let group = &mut self.group;
        if let Some(&known) = group.schema_of_type.get(&exact_type) {
            return known;
        }
        let mut projection = Vec::new();
        self.types.borrow_mut(py).write_projection(exact_type, self.merged, &mut projection);
        let size = projection.len() + 1;
        let found = number(&mut group.schema_of, &mut group.schemas, projection.clone(), projection, || size, &mut group.size);
        group.schema_of_type.insert(exact_type, found);
        found
    }
}

/// How long the lists of a group were.
struct Mark {
    size: usize,
    sources: usize,
    hours: usize,
    schemas: usize,
}

impl Group {
    fn mark(&self) -> Mark {
        Mark { size: self.size, sources: self.sources.len(), hours: self.hours.len(), schemas: self.schemas.len() }
    }

    /// Take back what came after a mark; the group ends then, so that numbers by key are not asked for again.
    fn forget(&mut self, mark: Mark) {
        self.size = mark.size;
        self.sources.truncate(mark.sources);
        self.hours.truncate(mark.hours);
        self.schemas.truncate(mark.schemas);
    }
}

/// The number of a thing in its list; a new one is added, and counted.
fn number<K: Eq + std::hash::Hash, V>(
    numbers: &mut HashMap<K, usize>, list: &mut Vec<V>, key: K, value: V, bytes: impl Fn() -> usize, size: &mut usize,
) -> usize {
    *numbers.entry(key).or_insert_with(|| {
        list.push(value);
        *size += bytes();
        list.len() - 1
    })
}

fn put(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("memory takes all");
}

fn write_list<T>(line: &mut Vec<u8>, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    for (number, item) in items.iter().enumerate() {
        line.push(if number == 0 { b'[' } else { b',' });
        write(line, item);
    }
    line.extend_from_slice(if items.is_empty() { b"[]" } else { b"]" });
}

/// Begin a line with its user, as JSON.
/// Writes a text as JSON does.
pub fn quote(text: &str, line: &mut Vec<u8>) {
    line.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => line.extend_from_slice(b"\\\""),
            b'\\' => line.extend_from_slice(b"\\\\"),
            0x08 => line.extend_from_slice(b"\\b"),
            0x09 => line.extend_from_slice(b"\\t"),
            0x0a => line.extend_from_slice(b"\\n"),
            0x0c => line.extend_from_slice(b"\\f"),
            0x0d => line.extend_from_slice(b"\\r"),
            0..=0x1f => put(line, format_args!("\\u{byte:04x}")),
            _ => line.push(byte),
        }
    }
    line.push(b'"');
}
