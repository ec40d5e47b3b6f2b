//! A record -> its entries: who and when each is of, its id, and the number of its type. All of them, or none.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::envelope::{Around, Envelope};
use crate::json::{unescape, Cursor, Parsed, Refused, Value};
use crate::shapes::Shapes;
use crate::times::{from_double, from_int, from_text, Unit};
use crate::types::Types;

const US_PER_HOUR: i64 = 3_600_000_000;
const USER_CHARS_MAX: usize = 4096;
const WHITE: &[u8] = b" \t\r\n"; // JSON's
const RECORD_BYTES_MAX: usize = 64 * 1024; // larger ones are looked at one by one: they may need a batch of their own

type Path = (String, Vec<String>);
type Keys = Vec<Vec<u8>>;
type Span = (usize, usize);

/// Where a value stands: in the entry or in the envelope around it, by the number of its path; or it is the record's key.
#[derive(Clone, Copy)]
enum Place {
    Entry(usize),
    Envelope(usize),
    Key,
}

/// What an entry's user, time and id are read by; see `log_partitioner.partitioning.partitioner`.
struct KeyRules {
    users: Vec<Place>,
    times: Vec<Place>,
    ids: Vec<Place>,
    no_users: Vec<Vec<u8>>,
    missing_user: Option<Vec<u8>>,
    unit: Unit,
    is_naive_utc: bool,
    earliest_us: i64,
    latest_us: i64,
    future_max_us: i64,
    is_ndjson: bool,
    /// Whether the record's timestamp stands in for a time that is absent.
    has_fallback: bool,
    entries_max: usize,
    /// How the value of a record begins in front of its payload, and where this begins.
    prefix: (Vec<u8>, usize),
    /// Bytes that the copies of what stands around a record's entries may have together.
    copied_max: usize,
}

/// One entry; its text is [start, end) of the payload and then of `Envelope::text`, its user of `Reader::users`.
pub struct Row {
    pub text: (usize, usize),
    pub end: (usize, usize),
    pub user: (usize, usize),
    pub hour: i64,
    pub event_time_us: i64,
    pub entry_type: u32,
    pub id: Option<String>,
    /// Whether the record's timestamp stands in for its time.
    pub is_fallback: bool,
}

/// One record as it is being read; its text is the payload.
pub struct Record<'a> {
    pub text: &'a [u8],
    pub key: Option<&'a [u8]>,
    pub timestamp_ms: i64,
}

/// Reads one record after the other.
pub struct Reader {
    rules: KeyRules,
    shapes: Shapes,
    /// Without steps where records are none.
    pub envelope: Envelope,
    /// Bytes of the copies of what stands around the entries so far.
    copied: usize,
    /// The rows of the record that was read last, and their users, one after the other.
    pub rows: Vec<Row>,
    pub users: Vec<u8>,
}

impl Reader {
    /// `rules` are those of `log_partitioner.batch.fast_lane` by name.
    pub fn new(rules: &Bound<'_, PyDict>, bytes_max: usize) -> PyResult<Self> {
        let get = |name: &str| rules.get_item(name)?.ok_or_else(|| PyValueError::new_err(name.to_owned()));
        let (mut in_entry, mut in_envelope) = (Vec::new(), Vec::new());
        let mut places = |name: &str| -> PyResult<Vec<Place>> {
            let paths: Vec<Path> = get(name)?.extract()?;
            paths.into_iter().map(|path| place(path, &mut in_entry, &mut in_envelope)).collect()
        };
        let (users, times, ids) = (places("user_paths")?, places("time_paths")?, places("id_paths")?);
        let steps: Vec<(String, bool)> = get("entries_steps")?.extract()?;
        let kept_as: Option<String> = get("envelope_kept_as")?.extract()?;
        let no_users: Vec<String> = get("no_users")?.extract()?;
        let missing: Option<String> = get("missing_user")?.extract()?;
        let unit: String = get("epoch_unit")?.extract()?;
        let rules = KeyRules {
            users,
            times,
            ids,
            is_ndjson: get("is_ndjson")?.extract()?,
            entries_max: get("entries_max")?.extract()?,
            prefix: get("prefix")?.extract()?,
            copied_max: get("copied_max")?.extract()?,
            has_fallback: get("has_fallback")?.extract()?,
            is_naive_utc: get("is_naive_utc")?.extract()?,
            no_users: no_users.into_iter().map(String::into_bytes).collect(),
            missing_user: missing.map(String::into_bytes),
            unit: Unit::parse(&unit).ok_or_else(|| PyValueError::new_err(unit))?,
            earliest_us: get("earliest_us")?.extract()?,
            latest_us: get("latest_us")?.extract()?,
            future_max_us: get("future_max_us")?.extract()?,
        };
        let shapes = |paths| Shapes::new(paths, bytes_max).ok_or_else(|| PyValueError::new_err("too many paths"));
        Ok(Reader {
            rules,
            shapes: shapes(in_entry)?,
            envelope: Envelope::new(steps, in_envelope, kept_as, shapes(Vec::new())?),
            copied: 0,
            rows: Vec::new(),
            users: Vec::new(),
        })
    }

    /// Begin with types of which nothing is known yet.
    pub fn begin(&mut self, types: &mut Types) {
        self.shapes.begin(types);
        self.envelope.begin(types);
    }

    /// The payload of a value.
    pub fn payload<'a>(&self, value: &'a [u8]) -> Parsed<&'a [u8]> {
        let (begin, size) = &self.rules.prefix;
        if value.len() > RECORD_BYTES_MAX || value.iter().zip(begin).any(|(own, wanted)| own != wanted) {
            return Err(Refused);
        }
        value.get(*size..).ok_or(Refused)
    }

    /// Read the entries of a record into `self.rows`, at least one.
    pub fn read(&mut self, record: &Record, types: &mut Types) -> Parsed<()> {
        let text = record.text;
        self.rows.clear();
        self.users.clear();
        self.copied = 0;
        self.envelope.leave();
        if std::str::from_utf8(text).is_err() {
            return Err(Refused);
        }
        if self.rules.is_ndjson {
            let mut start = 0;
            for line in text.split(|&byte| byte == b'\n') {
                if !line.iter().all(|byte| WHITE.contains(byte)) {
                    self.whole(record, types, start, start + line.len())?;
                }
                start += line.len() + 1;
            }
        } else {
            let is_list = text.iter().find(|byte| !WHITE.contains(byte)) == Some(&b'[');
            let end = if is_list {
                self.several(record, types, 0, self.envelope.steps())?
            } else {
                self.follow(record, types, 0, 0)?
            };
            Cursor::new(text, end).end()?;
        }
        if self.rows.is_empty() { Err(Refused) } else { Ok(()) }
    }

    /// Read one entry that has a text to itself.
    fn whole(&mut self, record: &Record, types: &mut Types, start: usize, end: usize) -> Parsed<()> {
        let mut cursor = Cursor::new(&record.text[..end], start);
        let entry_type = self.shapes.walk(&mut cursor, types, None)?;
        cursor.end()?;
        self.place(record, (start, end), Around::default(), entry_type)
    }

    /// Read the entries to which the steps after these lead from here; gives where that ends.
    fn follow(&mut self, record: &Record, types: &mut Types, at: usize, steps: usize) -> Parsed<usize> {
        if steps < self.envelope.steps() {
            let (inner, end) = self.envelope.enter(record.text, at, steps, types)?;
            if let Some(inner) = inner {
                if inner.is_list {
                    self.several(record, types, inner.at, steps + 1)?;
                } else {
                    self.follow(record, types, inner.at, steps + 1)?;
                }
                return Ok(end);
            }
        }
        if steps == 0 && at == 0 {
            self.whole(record, types, 0, record.text.len())?;
            return Ok(record.text.len());
        }
        let around = self.envelope.around(steps, types)?;
        let mut cursor = Cursor::new(record.text, at);
        let entry_type = self.shapes.walk(&mut cursor, types, around.field)?;
        self.place(record, (at, cursor.at), around, entry_type)?;
        Ok(cursor.at)
    }

    /// Read the items of an array; gives where it ends.
    fn several(&mut self, record: &Record, types: &mut Types, at: usize, steps: usize) -> Parsed<usize> {
        let mut cursor = Cursor::new(record.text, at);
        if cursor.value()? != Value::Array {
            return Err(Refused);
        }
        let mut items = 0;
        while cursor.next_item(items == 0)? {
            items += 1;
            if items > self.rules.entries_max {
                return Err(Refused);
            }
            cursor.at = self.follow(record, types, cursor.at, steps)?;
        }
        Ok(cursor.at)
    }

    /// Add a row for the entry that was walked last.
    fn place(&mut self, record: &Record, text: (usize, usize), around: Around, entry_type: u32) -> Parsed<()> {
        if self.rows.len() == self.rules.entries_max {
            return Err(Refused);
        }
        let (text, end) = self.joined(record, text, around)?;
        let start = self.users.len();
        self.read_user(record, start)?;
        let found = self.event_time_us(record)?;
        let event_time_us = found.map_or_else(|| self.fallback_us(record), Ok)?;
        let id = self.id(record)?;
        let (user, hour) = ((start, self.users.len()), event_time_us.div_euclid(US_PER_HOUR));
        self.rows.push(Row { text, end, user, hour, event_time_us, entry_type, id, is_fallback: found.is_none() });
        Ok(())
    }

    /// The two parts of a row's text: of an entry's without its last brace, and that with what stands around it.
    fn joined(&mut self, record: &Record, (start, end): Span, around: Around) -> Parsed<(Span, Span)> {
        if around.field.is_none() {
            return Ok(((start, end), (0, 0)));
        }
        let (comma, last) = around.text;
        self.copied += last - comma;
        if self.copied > self.rules.copied_max {
            return Err(Refused);
        }
        let is_empty = record.text[start + 1..end - 1].iter().all(|byte| WHITE.contains(byte));
        Ok(((start, end - 1), (comma + usize::from(is_empty), last)))
    }

    /// What stands at a place, and the text that it stands in.
    fn value<'a>(&self, record: &Record<'a>, place: Place) -> (&'a [u8], Option<Value>) {
        match place {
            Place::Entry(path) => (record.text, self.shapes.values[path]),
            Place::Envelope(path) => (record.text, self.envelope.values[path]),
            Place::Key => {
                let key = record.key.unwrap_or_default();
                let is_text = record.key.is_some() && std::str::from_utf8(key).is_ok();
                (key, is_text.then_some(Value::String { start: 0, end: key.len(), is_escaped: false }))
            }
        }
    }

    /// Append the entry's user to `self.users`, which is `start` bytes long.
    fn read_user(&mut self, record: &Record, start: usize) -> Parsed<()> {
        for number in 0..self.rules.users.len() {
            let (text, value) = self.value(record, self.rules.users[number]);
            self.users.truncate(start);
            let is_name = read_name(text, value, &mut self.users)?;
            let user = &self.users[start..];
            if is_name && !self.rules.no_users.iter().any(|one| one == user) {
                return if user.len() > USER_CHARS_MAX { Err(Refused) } else { Ok(()) };
            }
        }
        self.users.truncate(start);
        self.users.extend_from_slice(self.rules.missing_user.as_ref().ok_or(Refused)?);
        Ok(())
    }

    /// The first time that there is; where it is absurd, or cannot be read, Python says what becomes of the entry.
    fn event_time_us(&self, record: &Record) -> Parsed<Option<i64>> {
        let (rules, timestamp_ms) = (&self.rules, record.timestamp_ms);
        for &place in &rules.times {
            let (text, value) = self.value(record, place);
            let found = match value {
                None | Some(Value::Null) => continue,
                Some(Value::Int(number)) => from_int(number, rules.unit),
                Some(Value::Double(number)) => from_double(number, rules.unit),
                Some(Value::String { start, end, is_escaped: false }) => from_text(&text[start..end], rules.is_naive_utc),
                Some(_) => None,
            };
            let time_us = found.ok_or(Refused)?;
            let is_past = time_us < rules.earliest_us || time_us >= rules.latest_us;
            let is_future = timestamp_ms >= 0 && time_us > timestamp_ms.saturating_mul(1000).saturating_add(rules.future_max_us);
            return if is_past || is_future { Err(Refused) } else { Ok(Some(time_us)) };
        }
        Ok(None)
    }

    fn fallback_us(&self, record: &Record) -> Parsed<i64> {
        let is_date = (0..self.rules.latest_us / 1000).contains(&record.timestamp_ms);
        if self.rules.has_fallback && is_date { Ok(record.timestamp_ms * 1000) } else { Err(Refused) }
    }

    fn id(&self, record: &Record) -> Parsed<Option<String>> {
        for &place in &self.rules.ids {
            let mut id = Vec::new();
            let (text, value) = self.value(record, place);
            if read_name(text, value, &mut id)? {
                return Ok(Some(String::from_utf8(id).map_err(|_| Refused)?));
            }
        }
        Ok(None)
    }
}

/// The place that a path leads to; those of entry and envelope are numbered in the order they come.
fn place((home, keys): Path, in_entry: &mut Vec<Keys>, in_envelope: &mut Vec<Keys>) -> PyResult<Place> {
    let keys: Keys = keys.into_iter().map(String::into_bytes).collect();
    match home.as_str() {
        "entry" => {
            in_entry.push(keys);
            Ok(Place::Entry(in_entry.len() - 1))
        }
        "envelope" => {
            in_envelope.push(keys);
            Ok(Place::Envelope(in_envelope.len() - 1))
        }
        "key" => Ok(Place::Key),
        _ => Err(PyValueError::new_err(home)),
    }
}

/// Read a string, or an integer as text; false where the value is no name. A double may be an integer: Python looks.
fn read_name(text: &[u8], value: Option<Value>, out: &mut Vec<u8>) -> Parsed<bool> {
    match value {
        Some(Value::String { start, end, is_escaped: false }) => out.extend_from_slice(&text[start..end]),
        Some(Value::String { start, end, is_escaped: true }) => unescape(&text[start..end], out)?,
        Some(Value::Int(number)) => out.extend_from_slice(number.to_string().as_bytes()),
        Some(Value::Double(_)) => return Err(Refused),
        _ => return Ok(false),
    }
    Ok(true)
}

