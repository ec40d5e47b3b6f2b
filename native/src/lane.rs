//! Records -> rows: who and when an entry is of, its PartitionKey and type by number. What is not plain is left alone.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::json::{unescape, Cursor, Parsed, Refused, Value};
use crate::shapes::Shapes;
use crate::times::{from_double, from_int, from_text, Unit};

const US_PER_HOUR: i64 = 3_600_000_000;
const USER_CHARS_MAX: usize = 4096;
const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999; // as `service.avro.row_meta`
const RECORD_BYTES_MAX: usize = 64 * 1024; // larger ones are looked at one by one: they may need a batch of their own
const KIB: u64 = 1024;

/// The records of one poll as columns. Numbers of TopicPartitions are the lane's; -1 is a record without timestamp.
#[pyclass(frozen)]
pub struct Poll {
    values: Vec<Option<PyBackedBytes>>,
    tps: Vec<u32>,
    offsets: Vec<i64>,
    timestamps_ms: Vec<i64>,
}

#[pymethods]
impl Poll {
    #[new]
    fn new(
        values: Vec<Option<PyBackedBytes>>, tps: Vec<u32>, offsets: Vec<i64>, timestamps_ms: Vec<i64>,
    ) -> PyResult<Self> {
        if tps.len() != values.len() || offsets.len() != values.len() || timestamps_ms.len() != values.len() {
            return Err(PyValueError::new_err("columns of different lengths"));
        }
        Ok(Poll { values, tps, offsets, timestamps_ms })
    }
}

/// What one call has taken of a poll; columns are the bytes of native numbers.
#[pyclass(frozen, get_all)]
pub struct Taken {
    /// Records taken, one row each.
    records: usize,
    key_of: Py<PyBytes>,
    type_of: Py<PyBytes>,
    tp_of: Py<PyBytes>,
    offsets: Py<PyBytes>,
    event_times_us: Py<PyBytes>,
    timestamps_ms: Py<PyBytes>,
    text_sizes: Py<PyBytes>,
    text_bytes: u64,
    weight: u64,
    /// User and hour since the epoch of new PartitionKeys, and numbers of types new to the batch: in order of number.
    new_keys: Vec<(String, i64)>,
    new_types: Vec<u32>,
    /// (row, id), rows counted from the first of this call.
    ids: Vec<(u32, String)>,
    /// Of each TopicPartition: number, records, first and last offset, highest timestamp, last record of the poll.
    covered: Vec<(u32, u64, i64, i64, i64, usize)>,
    /// (TopicPartition, expected, found): offsets that no record of the poll has.
    gaps: Vec<(u32, i64, i64)>,
}

/// What an entry's user, time and id are read by; see `service.partitioning.partitioner.KeyRules`.
struct KeyRules {
    users: usize,
    times: usize,
    ids: usize,
    no_users: Vec<Vec<u8>>,
    missing_user: Option<Vec<u8>>,
    unit: Unit,
    is_naive_utc: bool,
    earliest_us: i64,
    latest_us: i64,
    future_max_us: i64,
    /// Whether the last path is that of an envelope's entries: what has it is no entry.
    has_envelopes: bool,
    is_ndjson: bool,
}

impl KeyRules {
    fn ids_end(&self) -> usize {
        self.users + self.times + self.ids
    }
}

/// One row on its way: built aside, so that a record that is refused leaves nothing.
struct Row {
    hour: i64,
    event_time_us: i64,
    entry_type: u32,
    id: Option<String>,
}

/// The fast lane of one worker; a batch is begun by `begin`.
#[pyclass]
pub struct Lane {
    rules: KeyRules,
    shapes: Shapes,
    keys: HashMap<Box<[u8]>, u32>,
    types: HashMap<u32, u32>,
    user: Vec<u8>,
}

#[derive(Default)]
struct Columns {
    key_of: Vec<u32>,
    type_of: Vec<u32>,
    tp_of: Vec<u32>,
    offsets: Vec<i64>,
    event_times_us: Vec<i64>,
    timestamps_ms: Vec<i64>,
    text_sizes: Vec<u32>,
    text_bytes: u64,
    weight: u64,
    new_keys: Vec<(String, i64)>,
    new_types: Vec<u32>,
    ids: Vec<(u32, String)>,
    covered: Vec<(u32, u64, i64, i64, i64, usize)>,
    gaps: Vec<(u32, i64, i64)>,
}

/// How far one call may go: to a record of the poll, to a weight, to bytes of source.
struct Bounds {
    stop: usize,
    weight_max: u64,
    bytes_max: u64,
}

#[pymethods]
impl Lane {
    /// `rules` are those of `service.batch.fast_lane.LaneRules` by name; a path is the keys that lead to a value.
    #[new]
    fn new(rules: &Bound<'_, PyDict>) -> PyResult<Self> {
        let get = |name: &str| rules.get_item(name)?.ok_or_else(|| PyValueError::new_err(name.to_owned()));
        let paths = |name: &str| get(name)?.extract::<Vec<Vec<String>>>();
        let (users, times, ids) = (paths("user_paths")?, paths("time_paths")?, paths("id_paths")?);
        let entries_field: Option<String> = get("entries_field")?.extract()?;
        let envelope = entries_field.map(|field| vec![field]);
        let no_users: Vec<String> = get("no_users")?.extract()?;
        let missing: Option<String> = get("missing_user")?.extract()?;
        let unit: String = get("epoch_unit")?.extract()?;
        let bytes_max = get("bytes_max")?.extract()?;
        let rules = KeyRules {
            users: users.len(),
            times: times.len(),
            ids: ids.len(),
            has_envelopes: envelope.is_some(),
            is_ndjson: get("is_ndjson")?.extract()?,
            is_naive_utc: get("is_naive_utc")?.extract()?,
            no_users: no_users.into_iter().map(String::into_bytes).collect(),
            missing_user: missing.map(String::into_bytes),
            unit: Unit::parse(&unit).ok_or_else(|| PyValueError::new_err(unit))?,
            earliest_us: get("earliest_us")?.extract()?,
            latest_us: get("latest_us")?.extract()?,
            future_max_us: get("future_max_us")?.extract()?,
        };
        let paths = users.into_iter().chain(times).chain(ids).chain(envelope);
        let paths = paths.map(|path| path.into_iter().map(String::into_bytes).collect()).collect();
        let shapes = Shapes::new(paths, bytes_max).ok_or_else(|| PyValueError::new_err("too many paths"))?;
        Ok(Lane { rules, shapes, keys: HashMap::new(), types: HashMap::new(), user: Vec::new() })
    }

    /// Begin a batch: PartitionKeys and types are numbered anew. True where all shapes were forgotten: they are too many,
    /// or `is_full` says so.
    fn begin(&mut self, is_full: bool) -> bool {
        self.keys = HashMap::new();
        self.types = HashMap::new();
        self.shapes.forget_if(is_full)
    }

    /// Remember the type of a text's shape; false where the text is not plain.
    fn learn(&mut self, text: PyBackedBytes, number: u32) -> bool {
        if std::str::from_utf8(&text).is_err() {
            return false;
        }
        self.shapes.learn(&mut Cursor::new(&text, 0), number).is_ok()
    }

    /// Give the number of a type in this batch: what it is, or `next`, which it then has.
    fn type_number(&mut self, number: u32, next: u32) -> u32 {
        *self.types.entry(number).or_insert(next)
    }

    /// Give the number of a PartitionKey in this batch: what it is, or `next`, which it then has.
    fn key_number(&mut self, user: &str, hour: i64, next: u32) -> u32 {
        let key = [user.as_bytes(), &hour.to_le_bytes()].concat().into_boxed_slice();
        *self.keys.entry(key).or_insert(next)
    }

    /// Take records from `first` on, up to the first that is not plain, or a bound.
    ///
    /// `rows_tps` are the numbers that the batch has for TopicPartitions, `next_offsets` what is expected of each, -1
    /// where it is not owned. `keys` and `types` are how many the batch has.
    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self, py: Python<'_>, poll: &Poll, first: usize, stop: usize, weight_max: u64, bytes_max: u64,
        rows_tps: Vec<u32>, mut next_offsets: Vec<i64>, keys: u32, types: u32,
    ) -> Taken {
        let bounds = Bounds { stop: stop.min(poll.values.len()), weight_max, bytes_max };
        let columns = py.detach(|| self.take_all(poll, first, &bounds, &rows_tps, &mut next_offsets, keys, types));
        Taken {
            records: columns.key_of.len(),
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
            new_types: columns.new_types,
            ids: columns.ids,
            covered: columns.covered,
            gaps: columns.gaps,
        }
    }
}

fn bytes_of<T: Copy, const N: usize>(py: Python<'_>, column: &[T], bytes: impl Fn(T) -> [u8; N]) -> Py<PyBytes> {
    let packed: Vec<u8> = column.iter().flat_map(|&one| bytes(one)).collect();
    PyBytes::new(py, &packed).unbind()
}

impl Lane {
    #[allow(clippy::too_many_arguments)]
    fn take_all(
        &mut self, poll: &Poll, first: usize, bounds: &Bounds, rows_tps: &[u32], next_offsets: &mut [i64], keys: u32,
        types: u32,
    ) -> Columns {
        let mut out = Columns::default();
        for at in first..bounds.stop {
            let (tp, offset, timestamp_ms) = (poll.tps[at] as usize, poll.offsets[at], poll.timestamps_ms[at]);
            let Some(Some(text)) = poll.values.get(at) else { break };
            let size = text.len() as u64;
            if out.weight >= bounds.weight_max || out.text_bytes + size > bounds.bytes_max {
                break;
            }
            let is_next = next_offsets[tp] >= 0 && offset >= next_offsets[tp];
            let row = if is_next { self.row(text, timestamp_ms) } else { Err(Refused) };
            let Ok(row) = row else { break };
            let number = out.key_of.len() as u32;
            let key = self.key_of(row.hour, keys, &mut out);
            out.key_of.push(key);
            let next_type = types + out.new_types.len() as u32;
            let entry_type = *self.types.entry(row.entry_type).or_insert(next_type);
            if entry_type == next_type {
                out.new_types.push(row.entry_type);
            }
            out.type_of.push(entry_type);
            out.tp_of.push(rows_tps[tp]);
            out.offsets.push(offset);
            out.event_times_us.push(row.event_time_us);
            out.timestamps_ms.push(if timestamp_ms > TIMESTAMP_MS_MAX { -1 } else { timestamp_ms });
            out.text_sizes.push(size as u32);
            out.text_bytes += size;
            out.weight += 1 + size / KIB;
            if let Some(id) = row.id {
                out.ids.push((number, id));
            }
            if offset > next_offsets[tp] {
                out.gaps.push((tp as u32, next_offsets[tp], offset));
            }
            next_offsets[tp] = offset + 1;
            cover(&mut out.covered, tp as u32, offset, timestamp_ms, at);
        }
        out
    }

    /// The number of the PartitionKey of the user that was read last.
    fn key_of(&mut self, hour: i64, keys: u32, out: &mut Columns) -> u32 {
        let length = self.user.len();
        self.user.extend_from_slice(&hour.to_le_bytes());
        let known = self.keys.get(self.user.as_slice()).copied();
        let number = known.unwrap_or_else(|| {
            let number = keys + out.new_keys.len() as u32;
            self.keys.insert(self.user.as_slice().into(), number);
            out.new_keys.push((String::from_utf8_lossy(&self.user[..length]).into_owned(), hour));
            number
        });
        self.user.truncate(length);
        number
    }

    /// Read a record that is one entry of a known shape; the user is left in `self.user`.
    fn row(&mut self, text: &[u8], timestamp_ms: i64) -> Parsed<Row> {
        if text.len() > RECORD_BYTES_MAX || std::str::from_utf8(text).is_err() {
            return Err(Refused);
        }
        let mut cursor = Cursor::new(text, 0);
        let entry_type = self.shapes.walk(&mut cursor)?.ok_or(Refused)?;
        cursor.end()?;
        if self.rules.is_ndjson && text.trim_ascii().contains(&b'\n') {
            return Err(Refused); // several lines
        }
        if self.rules.has_envelopes && self.shapes.values[self.rules.ids_end()].is_some() {
            return Err(Refused);
        }
        self.read_user(text)?;
        let event_time_us = self.event_time_us(text, timestamp_ms)?;
        let id = self.id(text)?;
        Ok(Row { hour: event_time_us.div_euclid(US_PER_HOUR), event_time_us, entry_type, id })
    }

    fn read_user(&mut self, text: &[u8]) -> Parsed<()> {
        for path in 0..self.rules.users {
            self.user.clear();
            let is_name = read_name(text, self.shapes.values[path], &mut self.user)?;
            if is_name && !self.rules.no_users.contains(&self.user) {
                return if self.user.len() > USER_CHARS_MAX { Err(Refused) } else { Ok(()) };
            }
        }
        self.user.clear();
        self.user.extend_from_slice(self.rules.missing_user.as_ref().ok_or(Refused)?);
        Ok(())
    }

    /// The first time that can be read; where there is none, or it is absurd, Python says what becomes of the entry.
    fn event_time_us(&self, text: &[u8], timestamp_ms: i64) -> Parsed<i64> {
        let rules = &self.rules;
        for path in rules.users..rules.users + rules.times {
            let found = match self.shapes.values[path] {
                None | Some(Value::Null) => continue,
                Some(Value::Int(number)) => from_int(number, rules.unit),
                Some(Value::Double(number)) => from_double(number, rules.unit),
                Some(Value::String { start, end, is_escaped: false }) => from_text(&text[start..end], rules.is_naive_utc),
                Some(_) => None,
            };
            let time_us = found.ok_or(Refused)?;
            let is_past = time_us < rules.earliest_us || time_us >= rules.latest_us;
            let is_future = timestamp_ms >= 0 && time_us > timestamp_ms.saturating_mul(1000).saturating_add(rules.future_max_us);
            return if is_past || is_future { Err(Refused) } else { Ok(time_us) };
        }
        Err(Refused)
    }

    fn id(&self, text: &[u8]) -> Parsed<Option<String>> {
        for value in &self.shapes.values[self.rules.users + self.rules.times..self.rules.ids_end()] {
            let mut id = Vec::new();
            if read_name(text, *value, &mut id)? {
                return Ok(Some(String::from_utf8(id).map_err(|_| Refused)?));
            }
        }
        Ok(None)
    }
}

/// Read a string, or an integer as text; false where the value is no name.
fn read_name(text: &[u8], value: Option<Value>, out: &mut Vec<u8>) -> Parsed<bool> {
    match value {
        Some(Value::String { start, end, is_escaped: false }) => out.extend_from_slice(&text[start..end]),
        Some(Value::String { start, end, is_escaped: true }) => unescape(&text[start..end], out)?,
        Some(Value::Int(number)) => out.extend_from_slice(number.to_string().as_bytes()),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Count a record as covered; there are few TopicPartitions, and records of one come in rows.
fn cover(covered: &mut Vec<(u32, u64, i64, i64, i64, usize)>, tp: u32, offset: i64, timestamp_ms: i64, at: usize) {
    if let Some(one) = covered.iter_mut().rev().find(|one| one.0 == tp) {
        one.1 += 1;
        one.3 = offset;
        one.4 = one.4.max(timestamp_ms);
        one.5 = at;
    } else {
        covered.push((tp, 1, offset, offset, timestamp_ms, at));
    }
}
