//! Rows of a closed batch -> blocks of objects, as `log_partitioner.batch.row_writer` writes them.

use std::collections::HashMap;

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict};

use crate::encode::{write_bytes, write_long, Node, RecordEncoder, PRESENT};
use crate::lines::{Blocks, Chunk};
use crate::texts::{Reader, Texts};
use crate::types::Types;

const NO_ID: &[u8] = &[0];
const NO_ROOT: &[u8] = &[0];
const ENCODED_FIELDS_MAX: usize = 100_000; // of all encoders that are kept

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
    tape: Vec<Node>,
    types: Py<Types>,
    /// By exact type and that of the object.
    encoders: HashMap<(u32, u32), RecordEncoder>,
    encoded_fields: usize,
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

/// A part to write: rows [begin, end), user, numbers of its hour, of its exact type and of that of its object, whether its
/// rows may be written in pieces.
type Part = (usize, usize, PyBackedStr, u32, u32, u32, bool);

#[pymethods]
impl Sealer {
    /// Columns are arrays of native numbers; `origins` the encoded topic and partition of each TopicPartition. `read`
    /// gives the bytes of a piece of `texts`, whose sizes are `sizes`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        order: &Bound<'_, PyAny>, tp_of: &Bound<'_, PyAny>, offsets: &Bound<'_, PyAny>, indexes: &Bound<'_, PyAny>,
        event_times_us: &Bound<'_, PyAny>, timestamps_ms: &Bound<'_, PyAny>, origins: Vec<PyBackedBytes>,
        texts: Py<Texts>, sizes: &Bound<'_, PyAny>, read: Py<PyAny>, types: Py<Types>, rules: WriteRules,
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
            tape: Vec::new(),
            types,
            encoders: HashMap::new(),
            encoded_fields: 0,
        })
    }

    /// Write parts, which follow each other, in blocks of one part, until there are `chunk_bytes`. The last one that was
    /// written may go on, where it may be in pieces.
    ///
    /// `slow` gives the bytes of the entry of a row whose text is not plain, by text and the number of its part.
    fn write(&mut self, py: Python<'_>, parts: Vec<Part>, slow: &Bound<'_, PyAny>) -> PyResult<Chunk> {
        let (mut bytes, mut out, mut found) = (0, Vec::new(), Vec::with_capacity(parts.len()));
        for (number, (begin, end, user, hour, exact_type, merged, is_divisible)) in parts.into_iter().enumerate() {
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
            self.require_encoder(py, exact_type, merged);
            while self.next < end && !(is_divisible && bytes >= self.rules.chunk_bytes) {
                let rows = self.write_block(py, self.next, end, number, (exact_type, merged), slow, &mut blocks)?;
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
    fn require_encoder(&mut self, py: Python<'_>, own: u32, merged: u32) {
        if self.encoders.contains_key(&(own, merged)) {
            return;
        }
        if self.encoded_fields > ENCODED_FIELDS_MAX {
            self.encoders.clear();
            self.encoded_fields = 0;
        }
        let encoder = RecordEncoder::new(&mut self.types.borrow_mut(py), own, merged);
        self.encoded_fields += 1 + encoder.weight();
        self.encoders.insert((own, merged), encoder);
    }

    /// Write the rows of one block, at most up to `end`, into `self.block`; gives how many.
    #[allow(clippy::too_many_arguments)]
    fn write_block(
        &mut self, py: Python<'_>, at: usize, end: usize, part: usize, pair: (u32, u32), slow: &Bound<'_, PyAny>,
        blocks: &mut Blocks,
    ) -> PyResult<usize> {
        let (ids, roots, out) = (self.rules.ids.bind(py), self.rules.roots.bind(py), &mut self.block);
        let (has_ids, has_roots) = (!ids.is_empty(), !roots.is_empty());
        let types = self.types.borrow(py);
        let encoder = self.encoders.get_mut(&pair).expect("it was made for the part");
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
            if encoder.write_entry(text, &types.keys, &mut self.tape, out).is_err() {
                out.truncate(start);
                out.extend_from_slice(slow.call1((text, part))?.extract::<&[u8]>()?);
            }
            blocks.add(self.tp_of[row], self.offsets[row], self.event_times_us[row]);
            if out.len() >= self.rules.block_bytes {
                break;
            }
        }
        Ok(blocks.rows - before)
    }
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
