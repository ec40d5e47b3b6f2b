//! Rows -> Avro: the bytes that `log_partitioner.avro.row_encoder` and `row_meta` make, from the same texts and types.

use std::collections::{HashMap, HashSet};

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict};

use crate::json::{is_long53, unescape, Cursor, Parsed, Refused, Value};
use crate::lines::{Blocks, Chunk};
use crate::texts::{Reader, Texts};

const ABSENT: u8 = 0; // a union's branch: null,
const PRESENT: u8 = 2; // or the type
const NO_ID: &[u8] = &[0];
const NO_ROOT: &[u8] = &[0];
const FEW_KEYS: usize = 16;

/// A type of the lattice, as it is written.
enum Type {
    Null,
    Bool,
    Long53,
    Long64,
    Double,
    String,
    Json,
    Array(Box<Type>),
    Map(Box<Type>),
    Record(Record),
}

/// An object with columns, in the order of their names.
struct Record {
    fields: Vec<(Vec<u8>, Type)>,
    numbers: HashMap<Vec<u8>, usize>,
    /// Which field stood at which place of the last object: most have the same order.
    order: Vec<usize>,
    /// The values of the object that is written, as they stand in it, and which of them each field has, counted from 1.
    values: Vec<(Value, usize)>,
    value_of: Vec<u16>,
}

impl Type {
    /// Read what Python says of a type: a scalar's name, or a pair of "array", "map" or "record" and its parts.
    fn parse(described: &Bound<'_, PyAny>) -> PyResult<Type> {
        if let Ok(name) = described.extract::<String>() {
            return Ok(match name.as_str() {
                "null" => Type::Null,
                "bool" => Type::Bool,
                "long53" => Type::Long53,
                "long64" => Type::Long64,
                "double" => Type::Double,
                "string" => Type::String,
                "json" => Type::Json,
                _ => return Err(PyValueError::new_err(name)),
            });
        }
        let (name, parts): (String, Bound<'_, PyAny>) = described.extract()?;
        Ok(match name.as_str() {
            "array" => Type::Array(Box::new(Type::parse(&parts)?)),
            "map" => Type::Map(Box::new(Type::parse(&parts)?)),
            _ => Type::Record(Record::parse(&parts)?),
        })
    }
}

impl Record {
    fn parse(parts: &Bound<'_, PyAny>) -> PyResult<Record> {
        let mut fields = Vec::new();
        for field in parts.try_iter()? {
            let (name, child): (String, Bound<'_, PyAny>) = field?.extract()?;
            fields.push((name.into_bytes(), Type::parse(&child)?));
        }
        let numbers = fields.iter().enumerate().map(|(number, (name, _))| (name.clone(), number)).collect();
        Ok(Record { fields, numbers, order: Vec::new(), values: Vec::new(), value_of: Vec::new() })
    }

    fn number_of(&mut self, place: usize, key: &[u8]) -> Parsed<usize> {
        let number = *self.numbers.get(key).ok_or(Refused)?;
        match self.order.get_mut(place) {
            Some(known) => *known = number,
            None => self.order.push(number),
        }
        Ok(number)
    }

    /// Write an object whose bracket was read: its values are found first, then written in the order of the fields.
    fn write(&mut self, cursor: &mut Cursor, out: &mut Vec<u8>) -> Parsed<()> {
        let mut values = std::mem::take(&mut self.values); // a type does not hold itself, but its memory is used again
        values.clear();
        self.value_of.clear();
        self.value_of.resize(self.fields.len(), 0);
        loop {
            let place = values.len();
            let number = match self.order.get(place) {
                Some(&number) if cursor.skip_key(place == 0, &self.fields[number].0) => number,
                _ => match cursor.next_key(place == 0)? {
                    Some(key) => self.number_of(place, key)?,
                    None => break,
                },
            };
            let value = cursor.value()?;
            values.push((value, cursor.at));
            let count = u16::try_from(values.len()).map_err(|_| Refused)?;
            if std::mem::replace(&mut self.value_of[number], count) > 0 {
                return Err(Refused); // the last one counts
            }
            cursor.pass(value)?;
        }
        for ((_, child), &number) in self.fields.iter_mut().zip(&self.value_of) {
            match number.checked_sub(1) {
                None => out.push(ABSENT),
                Some(before) => {
                    let (value, at) = values[usize::from(before)];
                    write(child, value, &mut Cursor::again(cursor.text, at), out)?;
                }
            }
        }
        self.values = values;
        Ok(())
    }
}

/// Write one value of a union with null; the cursor stands behind it, or behind its bracket.
fn write(child: &mut Type, value: Value, cursor: &mut Cursor, out: &mut Vec<u8>) -> Parsed<()> {
    if value == Value::Null {
        out.push(ABSENT);
        return Ok(());
    }
    out.push(PRESENT);
    match (child, value) {
        (Type::Bool, Value::Bool(value)) => out.push(u8::from(value)),
        (Type::Long53, Value::Int(number)) if is_long53(number) => write_long(number, out),
        (Type::Long64, Value::Int(number)) => write_long(number, out),
        (Type::Double, Value::Double(number)) => out.extend_from_slice(&number.to_le_bytes()),
        (Type::Double, Value::Int(number)) if is_long53(number) => {
            out.extend_from_slice(&(number as f64).to_le_bytes());
        }
        (Type::String, Value::String { start, end, is_escaped }) => {
            let text = &cursor.text[start..end];
            if is_escaped {
                write_sized(out, |out| unescape(text, out))?;
            } else {
                write_bytes(text, out);
            }
        }
        (Type::Json, Value::String { start, end, is_escaped: false }) => {
            write_bytes(&cursor.text[start - 1..=end], out);
        }
        (Type::Json, Value::Int(number)) => write_bytes(number.to_string().as_bytes(), out),
        (Type::Json, Value::Bool(value)) => write_bytes(if value { b"true" } else { b"false" }, out),
        (Type::Array(item), Value::Array) => write_items(cursor, out, |cursor, out, is_first| {
            if !cursor.next_item(is_first)? {
                return Ok(false);
            }
            let value = cursor.value()?;
            write(item, value, cursor, out)?;
            Ok(true)
        })?,
        (Type::Map(item), Value::Object) => {
            let mut seen: Vec<&[u8]> = Vec::new();
            write_items(cursor, out, |cursor, out, is_first| {
                let Some(key) = cursor.next_key(is_first)? else { return Ok(false) };
                if seen.len() == FEW_KEYS || seen.contains(&key) {
                    return Err(Refused); // what stands twice, and what would take long to compare
                }
                seen.push(key);
                write_bytes(key, out);
                let value = cursor.value()?;
                write(item, value, cursor, out)?;
                Ok(true)
            })?;
        }
        (Type::Record(record), Value::Object) if record.fields.is_empty() => {
            if cursor.next_key(true)?.is_some() {
                return Err(Refused);
            }
            out.push(0); // `{}` is a map without keys
        }
        (Type::Record(record), Value::Object) => record.write(cursor, out)?,
        _ => return Err(Refused),
    }
    Ok(())
}

/// Write items as one block, their number before them, and the end of blocks.
fn write_items<'a>(
    cursor: &mut Cursor<'a>, out: &mut Vec<u8>,
    mut next: impl FnMut(&mut Cursor<'a>, &mut Vec<u8>, bool) -> Parsed<bool>,
) -> Parsed<()> {
    let start = out.len();
    let mut items = 0;
    while next(cursor, out, items == 0)? {
        items += 1;
    }
    if items > 0 {
        insert_long(items, start, out);
    }
    out.push(0);
    Ok(())
}

fn write_bytes(text: &[u8], out: &mut Vec<u8>) {
    write_long(text.len() as i64, out);
    out.extend_from_slice(text);
}

fn write_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Parsed<()>) -> Parsed<()> {
    let start = out.len();
    write(out)?;
    insert_long((out.len() - start) as i64, start, out);
    Ok(())
}

/// Zigzag, then seven bits a byte, lowest first.
fn write_long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn insert_long(value: i64, at: usize, out: &mut Vec<u8>) {
    let mut number = Vec::with_capacity(10);
    write_long(value, &mut number);
    out.splice(at..at, number);
}

/// A schema to write rows under; made once for each object.
#[pyclass]
pub struct Written {
    record: Record,
}

#[pymethods]
impl Written {
    /// `fields` are (name, type) pairs, sorted by name.
    #[new]
    fn new(fields: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Written { record: Record::parse(fields)? })
    }
}

/// The columns of a closed batch, the texts of its rows, and the order in which they are sealed.
#[pyclass]
pub struct Sealer {
    order: Vec<u32>,
    tp_of: Vec<u32>,
    offsets: Vec<i64>,
    indexes: Vec<u32>,
    event_times_us: Vec<i64>,
    timestamps_ms: Vec<i64>,
    origins: Vec<PyBackedBytes>,
    sizes: Vec<u32>,
    reader: Reader,
    rules: WriteRules,
    /// The place of the row that is written next.
    next: usize,
    user: Vec<u8>,
    block: Vec<u8>,
}

/// How blocks are made; `ids` are by row, `roots` too, encoded, and `compress` gives the bytes of a block's rows.
///
/// `chunk_bytes` bounds what is written at once, before it is compressed.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct WriteRules {
    block_bytes: usize,
    chunk_bytes: usize,
    ids: Py<PyDict>,
    roots: Py<PyDict>,
    compress: Py<PyAny>,
    sync: PyBackedBytes,
}

/// A part to write: rows [begin, end), user, number of its hour and of its exact type, the schema of its object, whether
/// its rows may be written in pieces.
type Part<'py> = (usize, usize, PyBackedStr, u32, u32, Bound<'py, Written>, bool);

#[pymethods]
impl Sealer {
    /// Columns are arrays of native numbers; `origins` the encoded topic and partition of each TopicPartition. `read`
    /// gives the bytes of a piece of `texts`, whose sizes are `sizes`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        order: &Bound<'_, PyAny>, tp_of: &Bound<'_, PyAny>, offsets: &Bound<'_, PyAny>, indexes: &Bound<'_, PyAny>,
        event_times_us: &Bound<'_, PyAny>, timestamps_ms: &Bound<'_, PyAny>, origins: Vec<PyBackedBytes>,
        texts: Py<Texts>, sizes: &Bound<'_, PyAny>, read: Py<PyAny>, rules: WriteRules,
    ) -> PyResult<Self> {
        Ok(Sealer {
            order: column(order)?,
            tp_of: column(tp_of)?,
            offsets: column(offsets)?,
            indexes: column(indexes)?,
            event_times_us: column(event_times_us)?,
            timestamps_ms: column(timestamps_ms)?,
            origins,
            sizes: column(sizes)?,
            reader: Reader::new(order.py(), texts, read),
            rules,
            next: 0,
            user: Vec::new(),
            block: Vec::new(),
        })
    }

    /// Write parts, which follow each other, in blocks of one part, until there are `chunk_bytes`. The last one that was
    /// written may go on, where it may be in pieces.
    ///
    /// `slow` gives the bytes of the entry of a row whose text is not plain, by row, text and the number of its part.
    fn write(&mut self, py: Python<'_>, parts: Vec<Part<'_>>, slow: &Bound<'_, PyAny>) -> PyResult<Chunk> {
        let (mut bytes, mut out, mut found) = (0, Vec::new(), Vec::with_capacity(parts.len()));
        for (number, (begin, end, user, hour, exact_type, written, is_divisible)) in parts.into_iter().enumerate() {
            if bytes >= self.rules.chunk_bytes {
                break;
            }
            if begin != self.next {
                let (next, text) = (self.next, "is next, a part begins with");
                return Err(PyAssertionError::new_err(format!("W3: row {next} {text} {begin}")));
            }
            self.user.clear();
            write_bytes(user.as_bytes(), &mut self.user);
            let (start, mut blocks) = (out.len(), Blocks::new(user, hour, exact_type));
            let mut written = written.borrow_mut();
            while self.next < end && !(is_divisible && bytes >= self.rules.chunk_bytes) {
                let rows = self.write_block(py, self.next, end, number, &mut written.record, slow, &mut blocks)?;
                let packed = self.rules.compress.call1(py, (PyBytes::new(py, &self.block),))?;
                write_long(rows as i64, &mut out);
                write_bytes(packed.extract(py)?, &mut out);
                out.extend_from_slice(&self.rules.sync);
                self.next += rows;
                bytes += self.block.len();
            }
            blocks.length = out.len() - start;
            found.push(blocks);
        }
        Ok(Chunk::new(PyBytes::new(py, &out).unbind(), found))
    }
}

impl Sealer {
    /// Write the rows of one block, at most up to `end`, into `self.block`; gives how many.
    #[allow(clippy::too_many_arguments)]
    fn write_block(
        &mut self, py: Python<'_>, at: usize, end: usize, part: usize, written: &mut Record, slow: &Bound<'_, PyAny>,
        blocks: &mut Blocks,
    ) -> PyResult<usize> {
        let (ids, roots, out) = (self.rules.ids.bind(py), self.rules.roots.bind(py), &mut self.block);
        let (has_ids, has_roots) = (!ids.is_empty(), !roots.is_empty());
        let (texts, before) = (self.reader.texts(py), blocks.rows);
        out.clear();
        for &number in &self.order[at..end] {
            let row = number as usize;
            let text = self.reader.next(py, &texts, row, self.sizes[row] as usize)?;
            out.extend_from_slice(&self.user);
            write_long(self.event_times_us[row], out);
            match if has_ids { ids.get_item(number)? } else { None } {
                None => out.extend_from_slice(NO_ID),
                Some(id) => {
                    out.push(PRESENT);
                    write_bytes(id.extract::<PyBackedStr>()?.as_bytes(), out);
                }
            }
            out.extend_from_slice(&self.origins[self.tp_of[row] as usize]);
            write_long(self.offsets[row], out);
            write_long(i64::from(self.indexes[row]), out);
            write_long(self.timestamps_ms[row], out);
            match if has_roots { roots.get_item(number)? } else { None } {
                None => out.extend_from_slice(NO_ROOT),
                Some(root) => out.extend_from_slice(root.extract::<&[u8]>()?),
            }
            let start = out.len();
            if write_entry(text, written, out).is_err() {
                out.truncate(start);
                out.extend_from_slice(slow.call1((number, text, part))?.extract::<&[u8]>()?);
            }
            blocks.add(self.tp_of[row], self.offsets[row], self.event_times_us[row]);
            if out.len() >= self.rules.block_bytes {
                break;
            }
        }
        Ok(blocks.rows - before)
    }
}

/// Write an entry from its text, which is UTF-8 (`Texts`).
fn write_entry(text: &[u8], written: &mut Record, out: &mut Vec<u8>) -> Parsed<()> {
    let mut cursor = Cursor::again(text, 0);
    if cursor.value()? != Value::Object {
        return Err(Refused);
    }
    written.write(&mut cursor, out)?;
    cursor.end()
}

/// Copy an array; the buffer of an empty one is no buffer of numbers.
pub fn column<T: Element>(array: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    if array.is_empty()? { Ok(Vec::new()) } else { PyBuffer::<T>::get(array)?.to_vec(array.py()) }
}

/// Number rows as they are sealed: by the rank of their PartitionKey, then by arrival. Rows are counted from `first`.
#[pyfunction]
pub fn in_order<'py>(
    py: Python<'py>, key_of: &Bound<'_, PyAny>, first: u32, ranked: &Bound<'_, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (key_of, ranked) = (column::<u32>(key_of)?, column::<u32>(ranked)?);
    let key_of = &key_of[first as usize..];
    let mut places = vec![0_u32; ranked.len()];
    for &key in key_of {
        places[key as usize] += 1;
    }
    let mut at = 0;
    for &key in &ranked {
        let rows = std::mem::replace(&mut places[key as usize], at);
        at += rows;
    }
    let mut order = vec![[0; 4]; key_of.len()];
    for (row, &key) in (first..).zip(key_of) {
        let place = &mut places[key as usize];
        order[*place as usize] = row.to_ne_bytes();
        *place += 1;
    }
    Ok(PyBytes::new(py, order.as_flattened()))
}

/// The rows of one PartitionKey as [begin, end) of the order: (key, begin, end, bytes of texts, types in their order).
type Run = (u32, usize, usize, u64, Vec<u32>);

/// Take the order apart by PartitionKey.
#[pyfunction]
pub fn runs(
    order: &Bound<'_, PyAny>, key_of: &Bound<'_, PyAny>, type_of: &Bound<'_, PyAny>, sizes: &Bound<'_, PyAny>,
) -> PyResult<Vec<Run>> {
    let (order, key_of) = (column::<u32>(order)?, column::<u32>(key_of)?);
    let (type_of, sizes) = (column::<u32>(type_of)?, column::<u32>(sizes)?);
    let mut found: Vec<Run> = Vec::new();
    let mut seen = HashSet::new();
    for (at, &row) in order.iter().enumerate() {
        let row = row as usize;
        if found.last().is_none_or(|run| run.0 != key_of[row]) {
            found.push((key_of[row], at, at, 0, Vec::new()));
            seen.clear();
        }
        let run = found.last_mut().expect("one was pushed");
        run.2 = at + 1;
        run.3 += u64::from(sizes[row]);
        if run.4.last() != Some(&type_of[row]) && seen.insert(type_of[row]) {
            run.4.push(type_of[row]);
        }
    }
    Ok(found)
}
