//! Entries -> Avro: the bytes that `log_partitioner.avro.row_encoder` makes, from the same texts and types.

use crate::json::{is_long53, unescape, Cursor, Parsed, Refused, Value};
use crate::types::{Keys, Node as Type, Types, BOOL, DOUBLE, JSON, LONG53, LONG64, STRING};

const ABSENT: u8 = 0; // a union's branch: null,
pub const PRESENT: u8 = 2; // or the type
const FEW_KEYS: usize = 16;

/// Writes values of an exact type as an object's schema has them.
enum Encoder {
    /// Null throughout, or a type that JSON lacks, whose values are Python's to write.
    Null,
    Bool,
    Long53,
    Long64,
    Double,
    String,
    Json,
    Array(Box<Encoder>),
    Map(Box<Encoder>),
    /// `{}`, where the schema has a map.
    Empty,
    Record(RecordEncoder),
}

/// Writes objects of an exact type; its fields are in the order of the schema.
pub struct RecordEncoder {
    fields: Vec<Field>,
    /// How many fields the schema has.
    width: u32,
    /// Keys and their fields; ascending by key.
    by_key: Vec<(u32, u32)>,
    /// Which field stood at which place of the last object: most have the same order.
    order: Vec<u32>,
    /// The node of each field in the object that is written, counted from 1.
    node_of: Vec<u32>,
}

struct Field {
    key: u32,
    position: u32,
    encoder: Encoder,
}

/// A value as it stands in the text; the nodes of its parts stand behind it, up to `behind`. A map has each key before
/// its value.
pub struct Node {
    /// The number of the field in its object.
    field: u32,
    behind: u32,
    value: Value,
}

fn encoder(types: &mut Types, own: u32, merged: u32) -> Encoder {
    match (types.node(own).clone(), types.node(merged).clone()) {
        (Type::Scalar, _) => match own {
            BOOL => Encoder::Bool,
            LONG53 => Encoder::Long53,
            LONG64 => Encoder::Long64,
            DOUBLE => Encoder::Double,
            STRING => Encoder::String,
            JSON => Encoder::Json,
            _ => Encoder::Null,
        },
        (Type::Array(own), Type::Array(merged)) => Encoder::Array(Box::new(encoder(types, own, merged))),
        (Type::Map(own), Type::Map(merged)) => Encoder::Map(Box::new(encoder(types, own, merged))),
        (Type::Record(_), Type::Record(fields)) if !fields.is_empty() => {
            Encoder::Record(RecordEncoder::new(types, own, merged))
        }
        _ => Encoder::Empty,
    }
}

impl RecordEncoder {
    pub fn new(types: &mut Types, own: u32, merged: u32) -> Self {
        let placed = types.places(own, merged);
        let mut fields = Vec::with_capacity(placed.len());
        for one in placed {
            let encoder = encoder(types, one.own, one.merged);
            fields.push(Field { key: one.key, position: one.position, encoder });
        }
        let mut by_key: Vec<(u32, u32)> = fields.iter().zip(0..).map(|(field, number)| (field.key, number)).collect();
        by_key.sort_unstable();
        let node_of = vec![0; fields.len()];
        RecordEncoder { fields, width: types.fields(merged).len() as u32, by_key, order: Vec::new(), node_of }
    }

    /// How many fields it has, nested ones too: what it takes of memory.
    pub fn weight(&self) -> usize {
        self.fields.iter().map(|field| 1 + field.encoder.weight()).sum()
    }

    /// Write an entry from its text, which is UTF-8; `tape` is memory that is used again.
    pub fn write_entry(&mut self, text: &[u8], keys: &Keys, tape: &mut Vec<Node>, out: &mut Vec<u8>) -> Parsed<()> {
        let mut cursor = Cursor::again(text, 0);
        if cursor.value()? != Value::Object {
            return Err(Refused);
        }
        tape.clear();
        self.find(&mut cursor, keys, tape)?;
        cursor.end()?;
        self.write(text, tape, 0, tape.len(), out)
    }

    fn field_of(&mut self, place: usize, key: &[u8], keys: &Keys) -> Parsed<u32> {
        let key = keys.find(key).ok_or(Refused)?;
        let found = self.by_key.binary_search_by_key(&key, |one| one.0);
        let (_, field) = self.by_key[found.map_err(|_| Refused)?];
        match self.order.get_mut(place) {
            Some(known) => *known = field,
            None => self.order.push(field),
        }
        Ok(field)
    }

    /// Find the values of an object whose bracket was read.
    fn find(&mut self, cursor: &mut Cursor, keys: &Keys, tape: &mut Vec<Node>) -> Parsed<()> {
        for place in 0.. {
            let field = match self.order.get(place) {
                Some(&field) if cursor.skip_key(place == 0, keys.text(self.fields[field as usize].key)) => field,
                _ => match cursor.next_key(place == 0)? {
                    Some(key) => self.field_of(place, key, keys)?,
                    None => break,
                },
            };
            self.fields[field as usize].encoder.find(field, cursor, keys, tape)?;
        }
        Ok(())
    }

    /// Write an object whose values are the nodes [first, behind).
    fn write(&mut self, text: &[u8], tape: &[Node], first: usize, behind: usize, out: &mut Vec<u8>) -> Parsed<()> {
        self.node_of.fill(0);
        let mut at = first;
        while at < behind {
            let node = &tape[at];
            if std::mem::replace(&mut self.node_of[node.field as usize], at as u32 + 1) > 0 {
                return Err(Refused); // the last one counts
            }
            at = node.behind as usize;
        }
        let mut following = 0;
        for (field, &node) in self.fields.iter_mut().zip(&self.node_of) {
            if node > 0 {
                absent(field.position - following, out);
                field.encoder.write(text, tape, node as usize - 1, out)?;
                following = field.position + 1;
            }
        }
        absent(self.width - following, out);
        Ok(())
    }
}

fn absent(fields: u32, out: &mut Vec<u8>) {
    out.resize(out.len() + fields as usize, ABSENT);
}

impl Encoder {
    fn weight(&self) -> usize {
        match self {
            Encoder::Array(part) | Encoder::Map(part) => part.weight(),
            Encoder::Record(record) => record.weight(),
            _ => 0,
        }
    }

    /// Read the value that stands here, with its parts.
    fn find(&mut self, field: u32, cursor: &mut Cursor, keys: &Keys, tape: &mut Vec<Node>) -> Parsed<()> {
        let value = cursor.value()?;
        let node = tape.len();
        tape.push(Node { field, behind: 0, value });
        match (self, value) {
            (Encoder::Record(record), Value::Object) => record.find(cursor, keys, tape)?,
            (Encoder::Array(item), Value::Array) => {
                let mut is_first = true;
                while cursor.next_item(is_first)? {
                    is_first = false;
                    item.find(0, cursor, keys, tape)?;
                }
            }
            (Encoder::Map(item), Value::Object) => {
                let mut seen: Vec<&[u8]> = Vec::new();
                while let Some(key) = cursor.next_key(seen.is_empty())? {
                    if seen.len() == FEW_KEYS || seen.contains(&key) {
                        return Err(Refused); // what stands twice, and what would take long to compare
                    }
                    seen.push(key);
                    let start = key.as_ptr() as usize - cursor.text.as_ptr() as usize;
                    let text = Value::String { start, end: start + key.len(), is_escaped: false };
                    tape.push(Node { field: 0, behind: tape.len() as u32 + 1, value: text });
                    item.find(0, cursor, keys, tape)?;
                }
            }
            (Encoder::Empty, Value::Object) if cursor.next_key(true)?.is_none() => {}
            (_, Value::Object | Value::Array) => return Err(Refused),
            _ => {}
        }
        tape[node].behind = tape.len() as u32;
        Ok(())
    }

    /// Write the value of a node, of a union with null.
    fn write(&mut self, text: &[u8], tape: &[Node], node: usize, out: &mut Vec<u8>) -> Parsed<()> {
        let Node { behind, value, .. } = tape[node];
        let behind = behind as usize;
        if value == Value::Null {
            out.push(ABSENT);
            return Ok(());
        }
        out.push(PRESENT);
        match (self, value) {
            (Encoder::Bool, Value::Bool(value)) => out.push(u8::from(value)),
            (Encoder::Long53, Value::Int(number)) if is_long53(number) => write_long(number, out),
            (Encoder::Long64, Value::Int(number)) => write_long(number, out),
            (Encoder::Double, Value::Double(number)) => out.extend_from_slice(&number.to_le_bytes()),
            (Encoder::Double, Value::Int(number)) if is_long53(number) => {
                out.extend_from_slice(&(number as f64).to_le_bytes());
            }
            (Encoder::String, Value::String { start, end, is_escaped: false }) => write_bytes(&text[start..end], out),
            (Encoder::String, Value::String { start, end, is_escaped: true }) => {
                let at = out.len();
                unescape(&text[start..end], out)?;
                insert_long((out.len() - at) as i64, at, out);
            }
            (Encoder::Json, Value::String { start, end, is_escaped: false }) => {
                write_bytes(&text[start - 1..=end], out);
            }
            (Encoder::Json, Value::Int(number)) => write_bytes(number.to_string().as_bytes(), out),
            (Encoder::Json, Value::Bool(value)) => write_bytes(if value { b"true" } else { b"false" }, out),
            (Encoder::Array(item), Value::Array) => write_items(tape, node + 1, behind, out, |at, out| {
                item.write(text, tape, at, out)?;
                Ok(at)
            })?,
            (Encoder::Map(item), Value::Object) => write_items(tape, node + 1, behind, out, |at, out| {
                let Value::String { start, end, .. } = tape[at].value else { return Err(Refused) };
                write_bytes(&text[start..end], out);
                item.write(text, tape, at + 1, out)?;
                Ok(at + 1)
            })?,
            (Encoder::Empty, Value::Object) => out.push(0), // a map without keys
            (Encoder::Record(record), Value::Object) => record.write(text, tape, node + 1, behind, out)?,
            _ => return Err(Refused),
        }
        Ok(())
    }
}

/// Write items as one block, their number before them, and the end of blocks; `write` gives the node whose end is next.
fn write_items(
    tape: &[Node], first: usize, behind: usize, out: &mut Vec<u8>,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Parsed<usize>,
) -> Parsed<()> {
    let (start, mut items, mut at) = (out.len(), 0, first);
    while at < behind {
        at = tape[write(at, out)?].behind as usize;
        items += 1;
    }
    if items > 0 {
        insert_long(items, start, out);
    }
    out.push(0);
    Ok(())
}

pub fn write_bytes(text: &[u8], out: &mut Vec<u8>) {
    write_long(text.len() as i64, out);
    out.extend_from_slice(text);
}

/// Zigzag, then seven bits a byte, lowest first.
pub fn write_long(value: i64, out: &mut Vec<u8>) {
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
