//! Rows of Avro -> columns of the table, as buffers of Arrow. `log_partitioner_pipeline.columns` is the rule and the oracle.
//!
//! A plan says of each field of a file, in its order, which column takes its values, and what of them stands in the rest,
//! as JSON text. Nothing is known of Arrow here but the layout of its columns in memory.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::lines::quote;
use crate::times::{date_text, instant_text};

type Bad = &'static str;
type Told<'py> = Bound<'py, PyAny>;

const HOUR_US: i64 = 3_600_000_000;
const NUMBER_SIZE: usize = 8;
const BOOLEAN_SIZE: usize = 1;
const INSTANT_SIZE: usize = 27; // `YYYY-MM-DDTHH:MM:SS.ffffffZ`
const DATE_SIZE: usize = 10;

/// Avro's binary form, and the size of the values read of an entry: `bytes_of` in `log_partitioner_pipeline.columns`.
struct Input<'a> {
    data: &'a [u8],
    at: usize,
    size: usize,
}

impl<'a> Input<'a> {
    fn long(&mut self) -> Result<i64, Bad> {
        let (mut rest, mut shift) = (0u64, 0u32);
        loop {
            let byte = *self.data.get(self.at).ok_or("data ends early")?;
            self.at += 1;
            rest |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((rest >> 1) as i64 ^ -((rest & 1) as i64));
            }
            shift += 7;
            if shift > 63 {
                return Err("a number has too many bytes");
            }
        }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let end = self.at.checked_add(count).ok_or("data ends early")?;
        let found = self.data.get(self.at..end).ok_or("data ends early")?;
        self.at = end;
        Ok(found)
    }

    fn counted(&mut self) -> Result<&'a [u8], Bad> {
        let count = usize::try_from(self.long()?).map_err(|_| "a text has a negative length")?;
        self.bytes(count)
    }

    fn text(&mut self) -> Result<&'a str, Bad> {
        std::str::from_utf8(self.counted()?).map_err(|_| "a text is not UTF-8")
    }

    fn double(&mut self) -> Result<f64, Bad> {
        Ok(f64::from_le_bytes(self.bytes(8)?.try_into().expect("eight bytes")))
    }

    fn boolean(&mut self) -> Result<bool, Bad> {
        Ok(self.bytes(1)?[0] == 1)
    }

    fn value_text(&mut self) -> Result<&'a str, Bad> {
        let text = self.text()?;
        self.size += text.len();
        Ok(text)
    }

    fn value_json(&mut self) -> Result<&'a str, Bad> {
        let text = self.text()?;
        self.size += json_size(text.as_bytes());
        Ok(text)
    }

    fn value_long(&mut self) -> Result<i64, Bad> {
        self.size += NUMBER_SIZE;
        self.long()
    }

    /// Bytes, an instant and a date are as large as their texts.
    fn value_bytes(&mut self) -> Result<&'a [u8], Bad> {
        let data = self.counted()?;
        self.size += 4 * data.len().div_ceil(3);
        Ok(data)
    }

    fn value_instant(&mut self) -> Result<i64, Bad> {
        self.size += INSTANT_SIZE;
        self.long()
    }

    fn value_date(&mut self) -> Result<i64, Bad> {
        self.size += DATE_SIZE;
        self.long()
    }

    fn value_double(&mut self) -> Result<f64, Bad> {
        self.size += NUMBER_SIZE;
        self.double()
    }

    fn value_boolean(&mut self) -> Result<bool, Bad> {
        self.size += BOOLEAN_SIZE;
        self.boolean()
    }

    /// Whether a value follows, of a union of null and one type.
    fn is_there(&mut self) -> Result<bool, Bad> {
        match self.long()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a union has no such branch"),
        }
    }

    /// Calls `each` for each item of an array or a map; items have at least a byte, so that there is an end to them.
    fn items(&mut self, mut each: impl FnMut(&mut Self) -> Result<(), Bad>) -> Result<(), Bad> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                each(self)?;
            }
        }
    }
}

/// What stands in a file.
#[derive(Clone)]
enum Shape {
    Text,
    Bytes,
    Long,
    Double,
    Boolean,
    Record(Arc<Vec<Shape>>),
    List(Arc<Shape>),
    Map(Arc<Shape>),
}

impl Shape {
    fn of(told: &Told) -> PyResult<Self> {
        let (kind, inner): (String, Told) = told.extract()?;
        Ok(match kind.as_str() {
            "string" => Self::Text,
            "bytes" => Self::Bytes,
            "long" | "int" => Self::Long,
            "double" => Self::Double,
            "boolean" => Self::Boolean,
            "record" => Self::Record(Arc::new(each(&inner, Self::of)?)),
            "array" => Self::List(Arc::new(Self::of(&inner)?)),
            "map" => Self::Map(Arc::new(Self::of(&inner)?)),
            _ => return Err(unknown(&kind)),
        })
    }

    fn fields(&self) -> PyResult<&Arc<Vec<Shape>>> {
        match self {
            Self::Record(fields) => Ok(fields),
            _ => Err(PyValueError::new_err("a record stands there")),
        }
    }

    fn inner(&self) -> PyResult<&Shape> {
        match self {
            Self::List(inner) | Self::Map(inner) => Ok(inner),
            _ => Err(PyValueError::new_err("an array or a map stands there")),
        }
    }

    fn skip(&self, from: &mut Input) -> Result<(), Bad> {
        match self {
            Self::Text => from.text().map(drop),
            Self::Bytes => from.counted().map(drop),
            Self::Long => from.long().map(drop),
            Self::Double => from.double().map(drop),
            Self::Boolean => from.boolean().map(drop),
            Self::Record(fields) => fields.iter().try_for_each(|field| field.skip_any(from)),
            Self::List(item) => from.items(|from| item.skip_any(from)),
            Self::Map(value) => from.items(|from| {
                from.text()?;
                value.skip_any(from)
            }),
        }
    }

    fn skip_any(&self, from: &mut Input) -> Result<(), Bad> {
        if from.is_there()? { self.skip(from) } else { Ok(()) }
    }
}

/// How values of a file are written as JSON text.
enum Json {
    Text,
    Raw,
    Long,
    Double,
    Boolean,
    Bytes,
    Instant,
    Date,
    Empty(Shape),
    Never,
    Record(Arc<Vec<Shape>>, Vec<Option<(String, Json)>>),
    List(Box<Json>),
    Map(Box<Json>),
}

impl Json {
    fn of(told: &Told, shape: &Shape) -> PyResult<Self> {
        let (kind, inner): (String, Told) = told.extract()?;
        Ok(match kind.as_str() {
            "string" => Self::Text,
            "json" => Self::Raw,
            "long" => Self::Long,
            "double" => Self::Double,
            "boolean" => Self::Boolean,
            "bytes" => Self::Bytes,
            "timestamp" => Self::Instant,
            "date" => Self::Date,
            "empty" => Self::Empty(shape.clone()),
            "null" => Self::Never,
            "record" => {
                let shapes = shape.fields()?;
                let mut members: Vec<Option<(String, Json)>> = shapes.iter().map(|_| None).collect();
                for member in inner.try_iter()? {
                    let (at, name, json): (usize, String, Told) = member?.extract()?;
                    members[at] = Some((name, Self::of(&json, &shapes[at])?));
                }
                Self::Record(shapes.clone(), members)
            }
            "array" => Self::List(Box::new(Self::of(&inner, shape.inner()?)?)),
            "map" => Self::Map(Box::new(Self::of(&inner, shape.inner()?)?)),
            _ => return Err(unknown(&kind)),
        })
    }

    fn write(&self, from: &mut Input, out: &mut Vec<u8>) -> Result<(), Bad> {
        match self {
            Self::Text => quote(from.value_text()?, out),
            Self::Raw => out.extend_from_slice(from.value_json()?.as_bytes()),
            Self::Long => out.extend_from_slice(from.value_long()?.to_string().as_bytes()),
            Self::Double => out.extend_from_slice(format!("{:?}", from.value_double()?).as_bytes()),
            Self::Boolean => out.extend_from_slice(if from.value_boolean()? { b"true" } else { b"false" }),
            Self::Bytes => write_base64(from.value_bytes()?, out),
            Self::Instant => quote(&instant_text(from.value_instant()?).ok_or("an instant is of no year")?, out),
            Self::Date => quote(&date_text(from.value_date()?).ok_or("a date is of no year")?, out),
            Self::Empty(shape) => {
                shape.skip(from)?;
                out.extend_from_slice(b"{}");
            }
            Self::Never => return Err("a value stands where the reference says null"),
            Self::Record(shapes, members) => {
                out.push(b'{');
                for (shape, member) in shapes.iter().zip(members) {
                    if from.is_there()? {
                        match member {
                            None => shape.skip(from)?,
                            Some((name, json)) => {
                                from.size += name.len();
                                begin(name, out);
                                json.write(from, out)?;
                            }
                        }
                    }
                }
                out.push(b'}');
            }
            Self::List(item) => {
                out.push(b'[');
                from.items(|from| {
                    comma(out);
                    item.write_any(from, out).map(drop)
                })?;
                out.push(b']');
            }
            Self::Map(value) => {
                out.push(b'{');
                from.items(|from| {
                    let name = from.text()?;
                    begin(name, out);
                    if value.write_any(from, out)? {
                        from.size += name.len();
                    }
                    Ok(())
                })?;
                out.push(b'}');
            }
        }
        Ok(())
    }

    /// Returns whether there is a value.
    fn write_any(&self, from: &mut Input, out: &mut Vec<u8>) -> Result<bool, Bad> {
        let is_there = from.is_there()?;
        if is_there {
            self.write(from, out)?
        } else {
            out.extend_from_slice(b"null")
        }
        Ok(is_there)
    }
}

fn write_base64(data: &[u8], out: &mut Vec<u8>) {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push(b'"');
    for three in data.chunks(3) {
        let bits = three.iter().zip([16, 8, 0]).fold(0, |bits, (&byte, shift)| bits | u32::from(byte) << shift);
        for (nth, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            out.push(if nth > three.len() { b'=' } else { SIGNS[(bits >> shift) as usize & 63] });
        }
    }
    out.push(b'"');
}

/// The size of a JSON text's value; it is known to be one.
fn json_size(text: &[u8]) -> usize {
    let (mut at, mut size, mut name) = (0, 0, 0);
    while at < text.len() {
        let begin = at;
        at += 1;
        match text[begin] {
            b'"' => {
                let (end, string) = string_size(text, at);
                at = end + text[end..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                name = if text.get(at) == Some(&b':') { string } else { 0 };
                size += string;
            }
            b'n' => (at, size, name) = (at + 3, size - name, 0), // a member that is null
            b't' => (at, size) = (at + 3, size + BOOLEAN_SIZE),
            b'f' => (at, size) = (at + 4, size + BOOLEAN_SIZE),
            b'-' | b'0'..=b'9' => {
                at += text[at..]
                    .iter()
                    .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                    .count();
                size += NUMBER_SIZE;
            }
            b'[' | b',' => name = 0,
            _ => {}
        }
    }
    size
}

/// The place behind a string of JSON that begins at `at`, without its quote, and the bytes that it stands for.
fn string_size(text: &[u8], mut at: usize) -> (usize, usize) {
    let mut size = 0;
    while let Some(byte) = text.get(at) {
        match (byte, text.get(at + 1)) {
            (b'"', _) => return (at + 1, size),
            (b'\\', Some(b'u')) => {
                let digits = text.get(at + 2..at + 6).and_then(|digits| std::str::from_utf8(digits).ok());
                size += match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
                    Some(0..0x80) => 1,
                    Some(0x80..0x800 | 0xd800..0xe000) => 2, // or half of a pair of surrogates, which is four
                    _ => 3,
                };
                at += 6;
            }
            (b'\\', _) => (at, size) = (at + 2, size + 1),
            _ => (at, size) = (at + 1, size + 1),
        }
    }
    (text.len(), size)
}

fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'{' | b'[')) {
        out.push(b',');
    }
}

fn begin(name: &str, out: &mut Vec<u8>) {
    comma(out);
    quote(name, out);
    out.push(b':');
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Long,
    Int,
    Double,
    Boolean,
    Struct,
    List,
    Map,
}

/// A column as it grows: the buffers of Arrow.
struct Column {
    kind: Kind,
    rows: usize,
    nulls: usize,
    valid: Vec<u8>,
    offsets: Vec<i32>,
    data: Vec<u8>,
    kids: Vec<Column>,
}

impl Column {
    fn of(told: &Told) -> PyResult<Self> {
        let (name, inner): (String, Told) = told.extract()?;
        let kind = match name.as_str() {
            "string" | "binary" => Kind::Text,
            "long" | "timestamptz" => Kind::Long,
            "int" | "date" => Kind::Int,
            "double" => Kind::Double,
            "boolean" => Kind::Boolean,
            "struct" => Kind::Struct,
            "list" => Kind::List,
            "map" => Kind::Map,
            _ => return Err(unknown(&name)),
        };
        let kids = each(&inner, Self::of)?;
        let mut column = Self { kind, rows: 0, nulls: 0, valid: vec![], offsets: vec![], data: vec![], kids };
        column.clear();
        Ok(column)
    }

    fn clear(&mut self) {
        (self.rows, self.nulls) = (0, 0);
        self.valid.clear();
        self.data.clear();
        self.offsets.clear();
        if matches!(self.kind, Kind::Text | Kind::List | Kind::Map) {
            self.offsets.push(0);
        }
        self.kids.iter_mut().for_each(Self::clear);
    }

    fn bytes(&self) -> usize {
        self.data.len() + 4 * self.offsets.len() + self.kids.iter().map(Self::bytes).sum::<usize>()
    }

    fn mark(&mut self, is_there: bool) {
        if self.rows & 7 == 0 {
            self.valid.push(0);
            if self.kind == Kind::Boolean {
                self.data.push(0);
            }
        }
        if is_there {
            *self.valid.last_mut().expect("one byte at least") |= 1 << (self.rows & 7);
        } else {
            self.nulls += 1;
        }
        self.rows += 1;
    }

    fn end_at(&mut self, end: usize) -> Result<(), Bad> {
        self.offsets.push(i32::try_from(end).map_err(|_| "a column of a batch has more than 2 GiB")?);
        Ok(())
    }

    fn null(&mut self) -> Result<(), Bad> {
        self.mark(false);
        match self.kind {
            Kind::Text => self.end_at(self.data.len()),
            Kind::Long | Kind::Double => {
                self.data.extend_from_slice(&[0; 8]);
                Ok(())
            }
            Kind::Int => {
                self.data.extend_from_slice(&[0; 4]);
                Ok(())
            }
            Kind::Boolean => Ok(()),
            Kind::Struct => self.kids.iter_mut().try_for_each(Self::null),
            Kind::List | Kind::Map => self.end_at(self.kids[0].rows),
        }
    }

    fn text(&mut self, text: &[u8]) -> Result<(), Bad> {
        self.mark(true);
        self.data.extend_from_slice(text);
        self.end_at(self.data.len())
    }

    fn long(&mut self, value: i64) {
        self.mark(true);
        self.data.extend_from_slice(&value.to_le_bytes());
    }

    fn int(&mut self, value: i64) -> Result<(), Bad> {
        let value = i32::try_from(value).map_err(|_| "an int has more than 32 bits")?;
        self.mark(true);
        self.data.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn double(&mut self, value: f64) {
        self.mark(true);
        self.data.extend_from_slice(&value.to_le_bytes());
    }

    fn boolean(&mut self, value: bool) {
        let at = self.rows & 7;
        self.mark(true);
        if value {
            *self.data.last_mut().expect("one byte at least") |= 1 << at;
        }
    }

    /// (rows, nulls, validity, offsets, data, columns within)
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let offsets: Vec<u8> = self.offsets.iter().flat_map(|one| one.to_le_bytes()).collect();
        let kids = PyList::new(py, self.kids.iter().map(|kid| kid.buffers(py)).collect::<PyResult<Vec<_>>>()?)?;
        let (valid, data) = (PyBytes::new(py, &self.valid), PyBytes::new(py, &self.data));
        (self.rows, self.nulls, valid, PyBytes::new(py, &offsets), data, kids).into_pyobject(py)
    }
}

/// How values of a file become those of a column.
enum Plan {
    Text,
    Long,
    Double,
    Widened,
    Boolean,
    Bytes,
    Instant,
    Date,
    Empty(Shape),
    Never,
    Record(Record),
    List(Box<Plan>),
    Map(Box<Plan>),
}

/// A record whose fields go to columns of a struct, or to the rest, or nowhere; `absent` are the columns that it lacks.
struct Record {
    shapes: Arc<Vec<Shape>>,
    fields: Vec<Field>,
    absent: Vec<usize>,
}

#[derive(Default)]
struct Field {
    name_size: usize,
    column: Option<(usize, Plan)>,
    rest: Option<(String, Option<Json>)>,
}

impl Plan {
    fn of(told: &Told, shape: &Shape) -> PyResult<Self> {
        let (kind, inner): (String, Told) = told.extract()?;
        Ok(match kind.as_str() {
            "string" => Self::Text,
            "long" => Self::Long,
            "double" => Self::Double,
            "widened" => Self::Widened,
            "boolean" => Self::Boolean,
            "bytes" => Self::Bytes,
            "timestamp" => Self::Instant,
            "date" => Self::Date,
            "empty" => Self::Empty(shape.clone()),
            "null" => Self::Never,
            "record" => Self::Record(Record::of(&inner, shape.fields()?)?),
            "array" => Self::List(Box::new(Self::of(&inner, shape.inner()?)?)),
            "map" => Self::Map(Box::new(Self::of(&inner, shape.inner()?)?)),
            _ => return Err(unknown(&kind)),
        })
    }

    fn take(&self, from: &mut Input, column: &mut Column, rest: &mut Vec<u8>) -> Result<(), Bad> {
        match self {
            Self::Text => column.text(from.value_text()?.as_bytes())?,
            Self::Long => column.long(from.value_long()?),
            Self::Double => column.double(from.value_double()?),
            Self::Widened => column.double(from.value_long()? as f64),
            Self::Boolean => column.boolean(from.value_boolean()?),
            Self::Bytes => column.text(from.value_bytes()?)?,
            Self::Instant => column.long(from.value_instant()?),
            Self::Date => column.int(from.value_date()?)?,
            Self::Empty(shape) => {
                shape.skip(from)?;
                column.mark(true);
                column.kids.iter_mut().try_for_each(Column::null)?;
            }
            Self::Never => return Err("a value stands where the reference says null"),
            Self::Record(record) => {
                column.mark(true);
                record.take(from, &mut column.kids, rest)?;
            }
            Self::List(item) => {
                from.items(|from| item.take_any(from, &mut column.kids[0], rest).map(drop))?;
                column.mark(true);
                column.end_at(column.kids[0].rows)?;
            }
            Self::Map(value) => {
                let entries = &mut column.kids[0];
                from.items(|from| {
                    let name = from.text()?;
                    entries.mark(true);
                    entries.kids[0].text(name.as_bytes())?;
                    if value.take_any(from, &mut entries.kids[1], rest)? {
                        from.size += name.len();
                    }
                    Ok(())
                })?;
                column.mark(true);
                column.end_at(column.kids[0].rows)?;
            }
        }
        Ok(())
    }

    /// Returns whether there is a value.
    fn take_any(&self, from: &mut Input, column: &mut Column, rest: &mut Vec<u8>) -> Result<bool, Bad> {
        let is_there = from.is_there()?;
        if is_there {
            self.take(from, column, rest)?
        } else {
            column.null()?
        }
        Ok(is_there)
    }
}

impl Record {
    fn of(told: &Told, shapes: &Arc<Vec<Shape>>) -> PyResult<Self> {
        type Member<'py> = (usize, usize, Option<(usize, Told<'py>)>, Option<(String, Option<Told<'py>>)>);
        let (members, absent): (Told, Vec<usize>) = told.extract()?;
        let mut fields: Vec<Field> = shapes.iter().map(|_| Field::default()).collect();
        for member in members.try_iter()? {
            let (at, name_size, column, rest): Member = member?.extract()?;
            fields[at].name_size = name_size;
            if let Some((kid, plan)) = column {
                fields[at].column = Some((kid, Plan::of(&plan, &shapes[at])?));
            }
            if let Some((name, json)) = rest {
                let json = json.map(|json| Json::of(&json, &shapes[at])).transpose()?;
                fields[at].rest = Some((name, json));
            }
        }
        Ok(Self { shapes: shapes.clone(), fields, absent })
    }

    fn take(&self, from: &mut Input, kids: &mut [Column], rest: &mut Vec<u8>) -> Result<(), Bad> {
        for (shape, Field { name_size, column, rest: member }) in self.shapes.iter().zip(&self.fields) {
            let is_there = from.is_there()?;
            if is_there {
                from.size += name_size;
            }
            match (column, member) {
                (Some((kid, _)), _) if !is_there => kids[*kid].null()?,
                (None, _) if !is_there => {}
                (Some((kid, plan)), None) => plan.take(from, &mut kids[*kid], rest)?,
                (Some((kid, plan)), Some((name, _))) => {
                    let before = rest.len();
                    begin(name, rest);
                    rest.push(b'{');
                    let empty = rest.len();
                    plan.take(from, &mut kids[*kid], rest)?;
                    if rest.len() == empty { rest.truncate(before) } else { rest.push(b'}') }
                }
                (None, Some((name, Some(json)))) => {
                    begin(name, rest);
                    json.write(from, rest)?;
                }
                (None, _) => shape.skip(from)?,
            }
        }
        self.absent.iter().try_for_each(|kid| kids[*kid].null())
    }
}

/// The places of the table's own columns.
struct Places {
    user: usize,
    event_time: usize,
    hour: usize,
    reference: usize,
    meta: usize,
    rest: usize,
}

/// Gathers rows of many references, column by column.
#[pyclass]
pub struct Columns {
    columns: Vec<Column>,
    places: Places,
    schemas: Vec<Arc<Vec<Shape>>>,
    plans: Vec<Record>,
    rest: Vec<u8>,
}

#[pymethods]
impl Columns {
    /// `columns` are (kind, columns within) each; `places` has the numbers of the table's own ones: user, event time, hour,
    /// reference, meta, rest.
    #[new]
    fn new(columns: Told, places: (usize, usize, usize, usize, usize, usize)) -> PyResult<Self> {
        let (user, event_time, hour, reference, meta, rest) = places;
        let places = Places { user, event_time, hour, reference, meta, rest };
        Ok(Self { columns: each(&columns, Column::of)?, places, schemas: vec![], plans: vec![], rest: vec![] })
    }

    /// Learns an object's schema: the shapes of its fields but meta; returns its number.
    fn schema(&mut self, fields: Told) -> PyResult<usize> {
        self.schemas.push(Arc::new(each(&fields, Shape::of)?));
        Ok(self.schemas.len() - 1)
    }

    /// Learns how rows of such a schema become rows of the table; returns its number.
    ///
    /// A record is (fields, columns that it lacks), a field (its place, bytes of its name, (column, plan) or None, (name,
    /// how it is written or None where its parts are) or None); fields that are not among them are passed over.
    fn plan(&mut self, record: Told, schema: usize) -> PyResult<usize> {
        self.plans.push(Record::of(&record, &self.schemas[schema])?);
        Ok(self.plans.len() - 1)
    }

    /// Takes the rows of a block; a ValueError says what is wrong with it, and then nothing more can be taken.
    fn add(&mut self, block: &[u8], rows: usize, plan: usize, reference: &str) -> PyResult<()> {
        let mut from = Input { data: block, at: 0, size: 0 };
        let read = (0..rows).try_for_each(|_| self.row(&mut from, plan, reference));
        let is_whole = if from.at == block.len() { Ok(()) } else { Err("a block has more bytes than rows") };
        read.and(is_whole).map_err(PyValueError::new_err)
    }

    #[getter]
    fn rows(&self) -> usize {
        self.columns[self.places.user].rows
    }

    #[getter]
    fn size(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }

    /// Returns the buffers of each column, and begins anew.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let found = PyList::new(py, self.columns.iter().map(|one| one.buffers(py)).collect::<PyResult<Vec<_>>>()?)?;
        self.columns.iter_mut().for_each(Column::clear);
        Ok(found)
    }
}

impl Columns {
    fn row(&mut self, from: &mut Input, plan: usize, reference: &str) -> Result<(), Bad> {
        self.meta(from)?;
        self.columns[self.places.reference].text(reference.as_bytes())?;
        self.rest.clear();
        self.rest.push(b'{');
        from.size = 0;
        self.plans.get(plan).ok_or("no such plan")?.take(from, &mut self.columns, &mut self.rest)?;
        let size = i64::try_from(from.size).map_err(|_| "an entry is too large")?;
        self.columns[self.places.meta].kids.last_mut().ok_or("the table's own columns are others")?.long(size);
        let rest = &mut self.columns[self.places.rest];
        if self.rest.len() == 1 {
            return rest.null();
        }
        self.rest.push(b'}');
        rest.text(&self.rest)
    }

    /// The record meta, whose form is that of every row (docs/FORMATS.md).
    fn meta(&mut self, from: &mut Input) -> Result<(), Bad> {
        self.columns[self.places.user].text(from.text()?.as_bytes())?;
        let time_us = from.long()?;
        self.columns[self.places.event_time].long(time_us);
        let hour_us = time_us.checked_sub(time_us.rem_euclid(HOUR_US)).ok_or("an event time is of no year")?;
        self.columns[self.places.hour].long(hour_us);
        let meta = &mut self.columns[self.places.meta];
        meta.mark(true);
        let [id, topic, partition, offset, index, timestamp, root, _] = &mut meta.kids[..] else {
            return Err("the table's own columns are others");
        };
        if from.is_there()? {
            id.text(from.text()?.as_bytes())?
        } else {
            id.null()?
        }
        topic.text(from.text()?.as_bytes())?;
        partition.int(from.long()?)?;
        offset.long(from.long()?);
        index.int(from.long()?)?;
        let timestamp_ms = from.long()?;
        match timestamp_ms.checked_mul(1000) {
            Some(timestamp_us) => timestamp.long(timestamp_us),
            None => timestamp.null()?,
        }
        if !from.is_there()? {
            return root.null();
        }
        root.mark(true);
        let [topic, partition, offset, index] = &mut root.kids[..] else {
            return Err("the table's own columns are others");
        };
        topic.text(from.text()?.as_bytes())?;
        partition.int(from.long()?)?;
        offset.long(from.long()?);
        if from.is_there()? { index.int(from.long()?) } else { index.null() }
    }
}

fn each<'py, T>(told: &Told<'py>, of: impl Fn(&Told<'py>) -> PyResult<T>) -> PyResult<Vec<T>> {
    told.try_iter()?.map(|one| of(&one?)).collect()
}

fn unknown(kind: &str) -> PyErr {
    PyValueError::new_err(format!("there is no kind {kind}"))
}
