//! Records -> rows: PartitionKeys and types by number, offsets covered, bounds. What is not plain is left alone.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::records::{Reader, Record, Row};
use crate::texts::Texts;
use crate::types::{Bounds, Types};

const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999; // as `log_partitioner.avro.row_meta`
const KIB: u64 = 1024;

/// The records of one poll as columns. Numbers of TopicPartitions are the lane's; -1 is a record without timestamp.
#[pyclass(frozen)]
pub struct Poll {
    values: Vec<Option<PyBackedBytes>>,
    /// The records' keys; none at all where no path leads there.
    keys: Vec<Option<PyBackedBytes>>,
    tps: Vec<u32>,
    offsets: Vec<i64>,
    timestamps_ms: Vec<i64>,
    /// Of each TopicPartition: the number of the rules for its records.
    rules: Vec<usize>,
}

#[pymethods]
impl Poll {
    #[new]
    fn new(
        values: Vec<Option<PyBackedBytes>>, keys: Vec<Option<PyBackedBytes>>, tps: Vec<u32>, offsets: Vec<i64>,
        timestamps_ms: Vec<i64>, rules: Vec<usize>,
    ) -> PyResult<Self> {
        if !keys.is_empty() && keys.len() != values.len() {
            return Err(PyValueError::new_err("columns of different lengths"));
        }
        if tps.len() != values.len() || offsets.len() != values.len() || timestamps_ms.len() != values.len() {
            return Err(PyValueError::new_err("columns of different lengths"));
        }
        Ok(Poll { values, keys, tps, offsets, timestamps_ms, rules })
    }
}

/// What one call has taken of a poll; columns are the bytes of native numbers.
#[pyclass(frozen, get_all)]
pub struct Taken {
    /// Records taken, and the entries in them, one row each.
    records: usize,
    entries: usize,
    key_of: Py<PyBytes>,
    type_of: Py<PyBytes>,
    tp_of: Py<PyBytes>,
    offsets: Py<PyBytes>,
    indexes: Py<PyBytes>,
    event_times_us: Py<PyBytes>,
    timestamps_ms: Py<PyBytes>,
    text_sizes: Py<PyBytes>,
    text_bytes: u64,
    source_bytes: u64,
    /// Entries whose time the record's timestamp stands in for.
    fallbacks: u64,
    weight: u64,
    /// User and hour since the epoch of new PartitionKeys, in order of number.
    new_keys: Vec<(String, i64)>,
    /// TopicPartitions new to the batch, in order of number.
    new_tps: Vec<u32>,
    /// (row, id), rows counted from the first of this call.
    ids: Vec<(u32, String)>,
    /// Of each TopicPartition: number, records, entries, first and last offset, highest timestamp, last of the poll.
    covered: Vec<Covered>,
    /// (TopicPartition, expected, found): offsets that no record of the poll has.
    gaps: Vec<(u32, i64, i64)>,
}

type Covered = (u32, u64, u64, i64, i64, i64, usize);

/// The fast lane of one worker; a batch is begun by `begin`.
#[pyclass]
pub struct Lane {
    /// By number of the rules; none where these read no record.
    readers: Vec<Option<Reader>>,
    keys: KeyNumbers,
    /// Those of the open batch, and of the next one if they are not too many.
    #[pyo3(get)]
    types: Py<Types>,
}

/// The numbers of PartitionKeys in the open batch.
#[derive(Default)]
struct KeyNumbers {
    numbers: HashMap<Box<[u8]>, u32>,
    key: Vec<u8>,
}

#[derive(Default)]
struct Columns {
    key_of: Vec<u32>,
    type_of: Vec<u32>,
    tp_of: Vec<u32>,
    offsets: Vec<i64>,
    indexes: Vec<u32>,
    event_times_us: Vec<i64>,
    timestamps_ms: Vec<i64>,
    text_sizes: Vec<u32>,
    records: usize,
    text_bytes: u64,
    source_bytes: u64,
    fallbacks: u64,
    weight: u64,
    new_keys: Vec<(String, i64)>,
    new_tps: Vec<u32>,
    ids: Vec<(u32, String)>,
    covered: Vec<Covered>,
    gaps: Vec<(u32, i64, i64)>,
}

/// Types of which nothing is known yet, with readers that begin with them.
fn begin(readers: &mut [Option<Reader>], py: Python<'_>, bounds: Bounds) -> PyResult<Py<Types>> {
    let mut types = Types::with_bounds(bounds);
    for reader in readers.iter_mut().flatten() {
        reader.begin(&mut types);
    }
    Py::new(py, types)
}

/// How far one call may go: to a record of the poll, to a weight, to bytes of source.
struct Reach {
    stop: usize,
    weight_max: u64,
    bytes_max: u64,
}

#[pymethods]
impl Lane {
    /// `rules` are those of `log_partitioner.batch.fast_lane` by name, some for each topic that has its own; a path is the
    /// keys that lead to a value. Once types take `bytes_max`, no record brings a new one.
    #[new]
    fn new(py: Python<'_>, rules: Vec<Option<Bound<'_, PyDict>>>, bounds: Bounds, bytes_max: usize) -> PyResult<Self> {
        let reader = |rules: Option<&Bound<'_, PyDict>>| rules.map(|rules| Reader::new(rules, bytes_max)).transpose();
        let mut readers = rules.iter().map(|rules| reader(rules.as_ref())).collect::<PyResult<Vec<_>>>()?;
        let types = begin(&mut readers, py, bounds)?;
        Ok(Lane { readers, keys: KeyNumbers::default(), types })
    }

    /// Begin a batch: PartitionKeys are numbered anew; if types are too many, all are forgotten.
    fn begin(&mut self, py: Python<'_>, is_full: bool) -> PyResult<()> {
        self.keys = KeyNumbers::default();
        if is_full {
            let bounds = self.types.borrow(py).bounds.clone();
            self.types = begin(&mut self.readers, py, bounds)?;
        }
        Ok(())
    }

    /// Give the number of a PartitionKey in this batch: what it is, or `next`, which it then has.
    fn key_number(&mut self, user: &str, hour: i64, next: u32) -> u32 {
        let key = [user.as_bytes(), &hour.to_le_bytes()].concat().into_boxed_slice();
        *self.keys.numbers.entry(key).or_insert(next)
    }

    /// Take records from `first` on, up to the first that is not plain, or a bound.
    ///
    /// `rows_tps` are the numbers that the batch has for TopicPartitions, -1 for those without a row; `next_offsets` what
    /// is expected of each, -1 where it is not owned. `tps` and `keys` are how many the batch has; `texts` gets those of the
    /// rows.
    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self, py: Python<'_>, poll: &Poll, first: usize, stop: usize, weight_max: u64, bytes_max: u64,
        mut rows_tps: Vec<i64>, mut next_offsets: Vec<i64>, tps: u32, keys: u32, texts: &mut Texts,
    ) -> Taken {
        let reach = Reach { stop: stop.min(poll.values.len()), weight_max, bytes_max };
        let shared = self.types.clone_ref(py);
        let types = &mut *shared.borrow_mut(py);
        let columns =
            py.detach(|| self.take_all(poll, first, &reach, &mut rows_tps, &mut next_offsets, tps, keys, types, texts));
        Taken {
            records: columns.records,
            entries: columns.key_of.len(),
            indexes: bytes_of(py, &columns.indexes, |n| n.to_ne_bytes()),
            source_bytes: columns.source_bytes,
            fallbacks: columns.fallbacks,
            key_of: bytes_of(py, &columns.key_of, |n| n.to_ne_bytes()),
            type_of: bytes_of(py, &columns.type_of, |n| n.to_ne_bytes()),
            tp_of: bytes_of(py, &columns.tp_of, |n| n.to_ne_bytes()),
            offsets: bytes_of(py, &columns.offsets, |n| n.to_ne_bytes()),
            event_times_us: bytes_of(py, &columns.event_times_us, |n| n.to_ne_bytes()),
            timestamps_ms: bytes_of(py, &columns.timestamps_ms, |n| n.to_ne_bytes()),
            text_sizes: bytes_of(py, &columns.text_sizes, |n| n.to_ne_bytes()),
            text_bytes: columns.text_bytes,
            weight: columns.weight,
            new_keys: columns.new_keys,
            new_tps: columns.new_tps,
            ids: columns.ids,
            covered: columns.covered,
            gaps: columns.gaps,
        }
    }
}

fn bytes_of<T: Copy, const N: usize>(py: Python<'_>, column: &[T], bytes: impl Fn(T) -> [u8; N]) -> Py<PyBytes> {
    let packed: Vec<[u8; N]> = column.iter().map(|&one| bytes(one)).collect();
    PyBytes::new(py, packed.as_flattened()).unbind()
}

impl Lane {
    #[allow(clippy::too_many_arguments)]
    fn take_all(
        &mut self, poll: &Poll, first: usize, reach: &Reach, rows_tps: &mut [i64], next_offsets: &mut [i64], tps: u32,
        keys: u32, types: &mut Types, texts: &mut Texts,
    ) -> Columns {
        let mut out = Columns::default();
        for at in first..reach.stop {
            let (tp, offset, timestamp_ms) = (poll.tps[at] as usize, poll.offsets[at], poll.timestamps_ms[at]);
            let Some(Some(value)) = poll.values.get(at) else { break };
            let size = value.len() as u64;
            if out.weight >= reach.weight_max || out.source_bytes + size > reach.bytes_max {
                break;
            }
            let Some(Some(reader)) = self.readers.get_mut(poll.rules[tp]) else { break };
            let Ok(text) = reader.payload(value) else { break };
            let is_next = next_offsets[tp] >= 0 && offset >= next_offsets[tp];
            let key = poll.keys.get(at).and_then(|key| key.as_deref());
            if !is_next || reader.read(&Record { text, key, timestamp_ms }, types).is_err() {
                break;
            }
            if rows_tps[tp] < 0 {
                rows_tps[tp] = i64::from(tps) + out.new_tps.len() as i64;
                out.new_tps.push(tp as u32);
            }
            for (index, row) in reader.rows.iter_mut().enumerate() {
                let key = self.keys.number(&reader.users[row.user.0..row.user.1], row.hour, keys, &mut out.new_keys);
                out.add(row, index as u32, key);
                out.tp_of.push(rows_tps[tp] as u32);
                out.offsets.push(offset);
                out.timestamps_ms.push(if timestamp_ms > TIMESTAMP_MS_MAX { -1 } else { timestamp_ms });
                texts.append(&text[row.text.0..row.text.1], &reader.envelope.text[row.end.0..row.end.1]);
            }
            out.records += 1;
            out.source_bytes += size;
            out.weight += reader.rows.len() as u64 + size / KIB;
            if offset > next_offsets[tp] {
                out.gaps.push((tp as u32, next_offsets[tp], offset));
            }
            next_offsets[tp] = offset + 1;
            cover(&mut out.covered, tp as u32, reader.rows.len() as u64, offset, timestamp_ms, at);
        }
        out
    }
}

impl Columns {
    /// Add what a row says of itself.
    fn add(&mut self, row: &mut Row, index: u32, key: u32) {
        if let Some(id) = row.id.take() {
            self.ids.push((self.key_of.len() as u32, id));
        }
        let size = row.text.1 - row.text.0 + row.end.1 - row.end.0;
        self.indexes.push(index);
        self.event_times_us.push(row.event_time_us);
        self.text_sizes.push(size as u32);
        self.text_bytes += size as u64;
        self.fallbacks += u64::from(row.is_fallback);
        self.type_of.push(row.entry_type);
        self.key_of.push(key);
    }
}

impl KeyNumbers {
    /// The number of a PartitionKey; `keys` are how many the batch had when `new` were none.
    fn number(&mut self, user: &[u8], hour: i64, keys: u32, new: &mut Vec<(String, i64)>) -> u32 {
        self.key.clear();
        self.key.extend_from_slice(user);
        self.key.extend_from_slice(&hour.to_le_bytes());
        let known = self.numbers.get(self.key.as_slice()).copied();
        known.unwrap_or_else(|| {
            let number = keys + new.len() as u32;
            self.numbers.insert(self.key.as_slice().into(), number);
            new.push((String::from_utf8_lossy(user).into_owned(), hour));
            number
        })
    }
}

/// Count a record as covered; there are few TopicPartitions, and records of one come in rows.
fn cover(covered: &mut Vec<Covered>, tp: u32, entries: u64, offset: i64, timestamp_ms: i64, at: usize) {
    if let Some(one) = covered.iter_mut().rev().find(|one| one.0 == tp) {
        one.1 += 1;
        one.2 += entries;
        one.4 = offset;
        one.5 = one.5.max(timestamp_ms);
        one.6 = at;
    } else {
        covered.push((tp, 1, entries, offset, offset, timestamp_ms, at));
    }
}
