//! The lattice of types as numbers: equal types have one number, so that comparing and remembering costs nothing.
//!
//! The rules are those of `log_partitioner.avro` and `log_partitioner.avro.pack_schema`, which are the oracle.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::seal::column;
use crate::json::{Parsed, Refused};

pub const NULL: u32 = 0;
pub const BOOL: u32 = 1;
pub const LONG53: u32 = 2;
pub const LONG64: u32 = 3;
pub const DOUBLE: u32 = 4;
pub const STRING: u32 = 5;
pub const JSON: u32 = 6;
/// The last four are none in JSON, and known by name alone.
const SCALARS: [&str; 11] =
    ["null", "bool", "long53", "long64", "double", "string", "json", "bytes", "decimal", "timestamp", "date"];

const SCALAR_SIZE: u64 = 40;
const RECORD_SIZE: u64 = 80;
const FIELD_SIZE: u64 = 60;
const CHAR_SIZE: u64 = 4;
const KEY_BYTES: usize = 150; // measured, with some room: what a key takes beside its text, twice
const NODE_BYTES: usize = 150;
const PART_BYTES: usize = 16;
const REMEMBERED_BYTES: usize = 50;
const REMEMBERED_MAX: usize = 1 << 20;
const BESIDE: &[u8] = b"\xed\xa0\x80"; // as `log_partitioner.avro.names`: no original has half a surrogate

/// A key, and the type of what stands there; those of a record ascend by key.
pub type Field = (u32, u32);

#[derive(Clone)]
pub enum Node {
    Scalar,
    Array(u32),
    Map(u32),
    Record(Arc<[Field]>),
}

/// As `log_partitioner.config.settings.SchemaBounds`.
#[derive(FromPyObject, Clone)]
#[pyo3(from_item_all)]
pub struct Bounds {
    depth_max: usize,
    object_keys_max: usize,
    pub json_depth_max: usize,
    fields_max: u64,
    bytes_max: u64,
}

/// The keys of objects by number.
#[derive(Default)]
pub struct Keys {
    texts: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// The keys of the further fields of a name, by name and number.
    besides: HashMap<(u32, u32), u32>,
    /// The place of each among all in the order of their texts; of those that there were when it was asked for.
    ranks: Vec<u32>,
}

impl Keys {
    pub fn text(&self, key: u32) -> &[u8] {
        &self.texts[key as usize]
    }

    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    fn rank(&mut self) {
        if self.ranks.len() < self.texts.len() {
            let mut order: Vec<u32> = (0..self.texts.len() as u32).collect();
            order.sort_unstable_by_key(|&key| &self.texts[key as usize]);
            self.ranks.resize(order.len(), 0);
            for (rank, key) in order.into_iter().enumerate() {
                self.ranks[key as usize] = rank as u32;
            }
        }
    }
}

/// All types that one worker knows, until it forgets them.
#[pyclass]
pub struct Types {
    pub bounds: Bounds,
    pub keys: Keys,
    nodes: Vec<Node>,
    /// How many fields a type has, nested ones too, and the estimated bytes of its schema.
    weights: Vec<(u64, u64)>,
    records: HashMap<Arc<[Field]>, u32, Seed>,
    arrays: HashMap<u32, u32, Seed>,
    maps: HashMap<u32, u32, Seed>,
    joins: HashMap<Box<[u32]>, u32, Seed>,
    fused: HashMap<(u32, u32), Option<u32>, Seed>,
    /// The place of each field of a record in the order of names.
    positions: HashMap<u32, Arc<[u32]>, Seed>,
    /// Bytes of memory that joins, fused types and positions take,
    remembered_bytes: usize,
    /// and that all of this takes, rather too many.
    #[pyo3(get)]
    pub memory_bytes: usize,
}

/// A type as it stands, apart from its number; one that stays has that alone.
enum Tree {
    Kept(u32),
    Array(Box<Tree>),
    Map(Box<Tree>),
    Record(Vec<(u32, Tree)>),
}

/// A field of an exact type in a merged one: where it stands there, its key, both types.
#[derive(Clone, Copy)]
pub struct Placed {
    pub position: u32,
    pub key: u32,
    pub own: u32,
    pub merged: u32,
}

impl Types {
    pub fn with_bounds(bounds: Bounds) -> Self {
        let seed = Seed::default();
        Types {
            bounds,
            keys: Keys::default(),
            nodes: vec![Node::Scalar; SCALARS.len()],
            weights: vec![(0, SCALAR_SIZE); SCALARS.len()],
            records: HashMap::with_hasher(seed.clone()),
            arrays: HashMap::with_hasher(seed.clone()),
            maps: HashMap::with_hasher(seed.clone()),
            joins: HashMap::with_hasher(seed.clone()),
            fused: HashMap::with_hasher(seed.clone()),
            positions: HashMap::with_hasher(seed),
            remembered_bytes: 0,
            memory_bytes: 0,
        }
    }

    pub fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    fn weight(&self, number: u32) -> (u64, u64) {
        self.weights[number as usize]
    }

    /// The fields of a type that is known to be a record.
    pub fn fields(&self, number: u32) -> Arc<[Field]> {
        match self.node(number) {
            Node::Record(fields) => fields.clone(),
            _ => Arc::default(),
        }
    }

    pub fn key(&mut self, text: &[u8]) -> u32 {
        if let Some(key) = self.keys.find(text) {
            return key;
        }
        let key = self.keys.texts.len() as u32;
        self.memory_bytes += KEY_BYTES + 2 * text.len();
        self.keys.numbers.insert(text.into(), key);
        self.keys.texts.push(text.into());
        key
    }

    fn beside(&mut self, key: u32, number: u32) -> u32 {
        if number == 0 {
            return key;
        }
        if let Some(&beside) = self.keys.besides.get(&(key, number)) {
            return beside;
        }
        let text = [self.keys.text(key), BESIDE, format!("{number:06}").as_bytes()].concat();
        let beside = self.key(&text);
        self.keys.besides.insert((key, number), beside);
        beside
    }

    fn push(&mut self, node: Node, weight: (u64, u64), parts: usize) -> u32 {
        let number = self.nodes.len() as u32;
        self.nodes.push(node);
        self.weights.push(weight);
        self.memory_bytes += NODE_BYTES + PART_BYTES * parts;
        number
    }

    pub fn array(&mut self, item: u32) -> u32 {
        if let Some(&known) = self.arrays.get(&item) {
            return known;
        }
        let (fields, size) = self.weight(item);
        let number = self.push(Node::Array(item), (fields, SCALAR_SIZE + size), 0);
        self.arrays.insert(item, number);
        number
    }

    fn map(&mut self, value: u32) -> u32 {
        if let Some(&known) = self.maps.get(&value) {
            return known;
        }
        let (fields, size) = self.weight(value);
        let number = self.push(Node::Map(value), (fields, SCALAR_SIZE + size), 0);
        self.maps.insert(value, number);
        number
    }

    /// The record of fields that ascend by key.
    pub fn record(&mut self, fields: &[Field]) -> u32 {
        if let Some(known) = self.find_record(fields) {
            return known;
        }
        let (mut count, mut size) = (fields.len() as u64, RECORD_SIZE);
        for &(key, child) in fields {
            let (its_fields, its_size) = self.weight(child);
            let chars = self.keys.text(key).iter().filter(|&&byte| byte & 0xc0 != 0x80).count() as u64;
            count += its_fields;
            size += FIELD_SIZE + CHAR_SIZE * chars + its_size;
        }
        let shared: Arc<[Field]> = fields.into();
        let number = self.push(Node::Record(shared.clone()), (count, size), fields.len());
        self.records.insert(shared, number);
        number
    }

    pub fn find_record(&self, fields: &[Field]) -> Option<u32> {
        self.records.get(fields).copied()
    }

    fn fits(&self, number: u32) -> bool {
        let (fields, size) = self.weight(number);
        fields <= self.bounds.fields_max && size <= self.bounds.bytes_max
    }

    /// The type of entries that have this one before any rule by position or size: `infer_entry`, then `fit_entry`.
    pub fn entry_type(&mut self, raw: u32) -> Parsed<u32> {
        let mut fields = self.fields(raw).to_vec();
        if fields.len() as u64 > self.bounds.fields_max {
            return Err(Refused);
        }
        for field in &mut fields {
            field.1 = self.bounded(field.1, 2);
        }
        let mut found = self.record(&fields);
        if self.fits(found) {
            return Ok(found);
        }
        let mut places: Vec<usize> = (0..fields.len()).filter(|&at| self.weight(fields[at].1).0 > 0).collect();
        places.sort_by_key(|&at| (self.weight(fields[at].1), self.keys.text(fields[at].0).to_vec()));
        while !self.fits(found) {
            fields[places.pop().ok_or(Refused)?].1 = JSON;
            found = self.record(&fields);
        }
        Ok(found)
    }

    /// As `infer`: `depth` is the one that an object or array has in this position.
    fn bounded(&mut self, raw: u32, depth: usize) -> u32 {
        match self.node(raw).clone() {
            Node::Scalar => raw,
            _ if depth > self.bounds.depth_max => JSON,
            Node::Array(item) => {
                let item = self.bounded(item, depth + 1);
                self.array(item)
            }
            Node::Map(value) => {
                let value = self.bounded(value, depth + 1);
                self.map(value)
            }
            Node::Record(fields) => {
                let mut fields = fields.to_vec();
                for field in &mut fields {
                    field.1 = self.bounded(field.1, depth + 1);
                }
                self.object(&fields)
            }
        }
    }

    /// A record, or a map where it has too many keys.
    fn object(&mut self, fields: &[Field]) -> u32 {
        if fields.len() <= self.bounds.object_keys_max {
            return self.record(fields);
        }
        let value = self.join_all(fields.iter().map(|field| field.1).collect());
        self.map(value)
    }

    /// The join of types of one position.
    pub fn join_all(&mut self, mut types: Vec<u32>) -> u32 {
        types.sort_unstable();
        types.dedup();
        if types.len() > 1 && types[0] == NULL {
            types.remove(0);
        }
        match types[..] {
            [] => return NULL,
            [only] => return only,
            _ => {}
        }
        if let Some(&known) = self.joins.get(types.as_slice()) {
            return known;
        }
        let joined = match self.all_fields(&types) {
            Some(fields) => {
                let fields = self.joined_fields(fields);
                self.object(&fields)
            }
            None => self.join_others(&types),
        };
        self.remember(types.len());
        self.joins.insert(types.into(), joined);
        joined
    }

    /// The fields of all, if all are records.
    fn all_fields(&self, types: &[u32]) -> Option<Vec<Field>> {
        let mut all = Vec::new();
        for &one in types {
            let Node::Record(fields) = self.node(one) else { return None };
            all.extend_from_slice(fields);
        }
        Some(all)
    }

    fn joined_fields(&mut self, mut all: Vec<Field>) -> Vec<Field> {
        all.sort_unstable();
        all.dedup();
        let mut joined: Vec<Field> = Vec::with_capacity(all.len());
        for same in all.chunk_by(|one, other| one.0 == other.0) {
            let child = if let [(_, only)] = same { *only } else { self.join_all(same.iter().map(|one| one.1).collect()) };
            joined.push((same[0].0, child));
        }
        joined
    }

    /// The join of types that are not all records, two at least, none of them null.
    fn join_others(&mut self, types: &[u32]) -> u32 {
        let (mut items, mut values, mut numbers) = (Vec::new(), Vec::new(), 0);
        for &one in types {
            match self.node(one) {
                Node::Array(item) => items.push(*item),
                Node::Map(value) => values.push(*value),
                Node::Record(fields) => values.extend(fields.iter().map(|field| field.1)),
                Node::Scalar => numbers += usize::from(matches!(one, LONG53 | LONG64 | DOUBLE)),
            }
        }
        let are_objects = types.iter().all(|&one| matches!(self.node(one), Node::Map(_) | Node::Record(_)));
        if items.len() == types.len() {
            let item = self.join_all(items);
            self.array(item)
        } else if are_objects {
            let value = self.join_all(values);
            self.map(value)
        } else if numbers == types.len() && !(types.contains(&LONG64) && types.contains(&DOUBLE)) {
            if types.contains(&DOUBLE) { DOUBLE } else { LONG64 }
        } else {
            JSON
        }
    }

    /// Count what is remembered; forget it where it is too much.
    fn remember(&mut self, parts: usize) {
        if self.joins.len() + self.fused.len() > REMEMBERED_MAX {
            self.forget();
        }
        let bytes = REMEMBERED_BYTES + PART_BYTES * parts;
        self.remembered_bytes += bytes;
        self.memory_bytes += bytes;
    }

    fn forget(&mut self) {
        self.joins.clear();
        self.fused.clear();
        self.positions.clear();
        self.memory_bytes -= std::mem::take(&mut self.remembered_bytes);
    }

    fn tree(&self, number: u32, kept: u32) -> Tree {
        if number < kept {
            return Tree::Kept(number);
        }
        match self.node(number) {
            Node::Scalar => Tree::Kept(number),
            Node::Array(item) => Tree::Array(Box::new(self.tree(*item, kept))),
            Node::Map(value) => Tree::Map(Box::new(self.tree(*value, kept))),
            Node::Record(fields) => Tree::Record(fields.iter().map(|&(key, child)| (key, self.tree(child, kept))).collect()),
        }
    }

    fn plant(&mut self, tree: Tree) -> u32 {
        match tree {
            Tree::Kept(number) => number,
            Tree::Array(item) => {
                let item = self.plant(*item);
                self.array(item)
            }
            Tree::Map(value) => {
                let value = self.plant(*value);
                self.map(value)
            }
            Tree::Record(fields) => {
                let fields: Vec<Field> = fields.into_iter().map(|(key, child)| (key, self.plant(child))).collect();
                self.record(&fields)
            }
        }
    }

    /// As `pack_schema.merge`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        let (mine, theirs) = (self.fields(left), self.fields(right));
        let (mut changed, mut new) = (Vec::new(), Vec::new());
        for &(key, child) in theirs.iter() {
            let (key, at, fused) = self.place(&mine, key, child);
            match at {
                None => new.push((key, fused)),
                Some(at) if mine[at].1 != fused => changed.push((at, fused)),
                _ => {}
            }
        }
        if changed.is_empty() && new.is_empty() {
            return left;
        }
        let mut merged = mine.to_vec();
        for (at, fused) in changed {
            merged[at].1 = fused;
        }
        merged.extend(new);
        merged.sort_unstable();
        self.record(&merged)
    }

    /// The first field of a name that takes a type: its key, its place among `fields` if it is there, what it becomes.
    fn place(&mut self, fields: &[Field], name: u32, child: u32) -> (u32, Option<usize>, u32) {
        for number in 0.. {
            let key = self.beside(name, number);
            let Ok(at) = fields.binary_search_by_key(&key, |field| field.0) else { return (key, None, child) };
            if let Some(fused) = self.fuse(fields[at].1, child) {
                return (key, Some(at), fused);
            }
        }
        unreachable!("a name has some fields")
    }

    /// The type of a field that holds both; None where they need a field each.
    fn fuse(&mut self, left: u32, right: u32) -> Option<u32> {
        match (left, right) {
            _ if left == right || right == NULL => return Some(left),
            (NULL, _) => return Some(right),
            (LONG53 | LONG64, LONG53 | LONG64) => return Some(LONG64),
            _ => {}
        }
        if left < SCALARS.len() as u32 || right < SCALARS.len() as u32 {
            return None;
        }
        if let Some(&known) = self.fused.get(&(left, right)) {
            return known;
        }
        let is_empty = |fields: &Arc<[Field]>| fields.is_empty();
        let fused = match (self.node(left).clone(), self.node(right).clone()) {
            (Node::Record(_), Node::Record(_)) => Some(self.merge(left, right)),
            (Node::Record(fields), Node::Map(_)) if is_empty(&fields) => Some(right),
            (Node::Map(_), Node::Record(fields)) if is_empty(&fields) => Some(left),
            (Node::Array(one), Node::Array(other)) => self.fuse(one, other).map(|item| self.array(item)),
            (Node::Map(one), Node::Map(other)) => self.fuse(one, other).map(|value| self.map(value)),
            _ => None,
        };
        self.remember(2);
        self.fused.insert((left, right), fused);
        fused
    }

    /// The fields of an exact type in the merged one, in the order in which they stand there.
    pub fn places(&mut self, own: u32, merged: u32) -> Vec<Placed> {
        let (fields, positions) = (self.fields(merged), self.positions(merged));
        let mut placed: Vec<Placed> = Vec::with_capacity(fields.len());
        for &(name, child) in self.fields(own).iter() {
            let (_, at, _) = self.place(&fields, name, child);
            let at = at.expect("the merged type holds it");
            placed.push(Placed { position: positions[at], key: name, own: child, merged: fields[at].1 });
        }
        placed.sort_unstable_by_key(|one| one.position);
        placed
    }

    fn positions(&mut self, record: u32) -> Arc<[u32]> {
        if let Some(known) = self.positions.get(&record) {
            return known.clone();
        }
        self.keys.rank();
        let fields = self.fields(record);
        let mut order: Vec<usize> = (0..fields.len()).collect();
        order.sort_unstable_by_key(|&at| self.keys.ranks[fields[at].0 as usize]);
        let mut positions = vec![0; fields.len()];
        for (position, at) in order.into_iter().enumerate() {
            positions[at] = position as u32;
        }
        let positions: Arc<[u32]> = positions.into();
        self.remember(positions.len());
        self.positions.insert(record, positions.clone());
        positions
    }

    /// The projection that makes an exact type out of the merged one, as JSON (`log_partitioner.formats.projection`).
    pub fn write_projection(&mut self, own: u32, merged: u32, out: &mut Vec<u8>) {
        if own == merged {
            out.extend_from_slice(b"null");
            return;
        }
        out.push(b'[');
        for (nth, one) in self.places(own, merged).into_iter().enumerate() {
            if nth > 0 {
                out.push(b',');
            }
            if one.own == one.merged {
                out.extend_from_slice(one.position.to_string().as_bytes());
            } else {
                out.extend_from_slice(format!("[{},", one.position).as_bytes());
                self.write_part(one.own, one.merged, out);
                out.push(b']');
            }
        }
        out.push(b']');
    }

    /// Project one position whose types differ.
    fn write_part(&mut self, own: u32, merged: u32, out: &mut Vec<u8>) {
        match (self.node(own).clone(), self.node(merged).clone()) {
            (Node::Record(fields), Node::Record(_)) if !fields.is_empty() => self.write_projection(own, merged, out),
            (Node::Record(_), _) => out.extend_from_slice(b"\"empty-object\""),
            (Node::Array(own), Node::Array(merged)) => self.write_inner("items", own, merged, out),
            (Node::Map(own), Node::Map(merged)) => self.write_inner("values", own, merged, out),
            _ => out.extend_from_slice(if own == NULL { b"\"null\"" } else { b"\"long53\"" }),
        }
    }

    fn write_inner(&mut self, name: &str, own: u32, merged: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{{\"{name}\":").as_bytes());
        self.write_part(own, merged, out);
        out.push(b'}');
    }
}

#[pymethods]
impl Types {
    #[new]
    fn new(bounds: Bounds) -> Self {
        Self::with_bounds(bounds)
    }

    /// The number of a type as `log_partitioner.batch.types` describes it: a scalar's name, or a pair of "array", "map"
    /// or "record" and its parts.
    fn intern(&mut self, described: &Bound<'_, PyAny>) -> PyResult<u32> {
        if let Ok(name) = described.extract::<String>() {
            let number = SCALARS.iter().position(|&scalar| scalar == name);
            return number.map(|number| number as u32).ok_or_else(|| PyValueError::new_err(name));
        }
        let (name, parts): (String, Bound<'_, PyAny>) = described.extract()?;
        match name.as_str() {
            "array" => self.intern(&parts).map(|item| self.array(item)),
            "map" => self.intern(&parts).map(|value| self.map(value)),
            _ => {
                let mut fields = Vec::new();
                for field in parts.try_iter()? {
                    let (name, child): (String, Bound<'_, PyAny>) = field?.extract()?;
                    fields.push((self.key(name.as_bytes()), self.intern(&child)?));
                }
                fields.sort_unstable();
                Ok(self.record(&fields))
            }
        }
    }

    /// What `intern` takes.
    fn described<'py>(&self, py: Python<'py>, number: u32) -> PyResult<Bound<'py, PyAny>> {
        let pair = |name: &str, part: u32| (name, self.described(py, part)?).into_pyobject(py).map(Bound::into_any);
        match self.node(number) {
            Node::Scalar => Ok(SCALARS[number as usize].into_pyobject(py)?.into_any()),
            Node::Array(item) => pair("array", *item),
            Node::Map(value) => pair("map", *value),
            Node::Record(fields) => {
                let parts = PyList::empty(py);
                for &(key, child) in fields.iter() {
                    let name = PyBytes::new(py, self.keys.text(key)).call_method1("decode", ("utf-8", "surrogatepass"))?;
                    parts.append((name, self.described(py, child)?))?;
                }
                Ok(("record", parts).into_pyobject(py)?.into_any())
            }
        }
    }

    /// The estimated bytes of a type's schema.
    fn size(&self, number: u32) -> u64 {
        self.weight(number).1
    }

    /// How many top-level fields a type has.
    fn width(&self, number: u32) -> usize {
        self.fields(number).len()
    }

    /// How many of the top-level names of the second the first has, too.
    fn shared(&self, left: u32, right: u32) -> usize {
        let mine = self.fields(left);
        self.fields(right).iter().filter(|field| mine.binary_search_by_key(&field.0, |one| one.0).is_ok()).count()
    }

    /// The join of entries' types; None where it passes a bound of one schema.
    fn join(&mut self, numbers: Vec<u32>) -> Option<u32> {
        if let [only] = numbers[..] {
            return Some(only);
        }
        let all = self.all_fields(&numbers)?;
        let fields = self.joined_fields(all);
        let joined = self.record(&fields);
        self.fits(joined).then_some(joined)
    }

    /// The merged type of a pack that takes one more; None where it passes a bound of one schema.
    fn merged(&mut self, left: u32, right: u32) -> Option<u32> {
        let merged = self.merge(left, right);
        self.fits(merged).then_some(merged)
    }

    /// How many types there are.
    fn __len__(&self) -> usize {
        self.nodes.len()
    }

    /// Of the types behind the first `kept` keep these alone; gives the numbers that they have then.
    fn keep_only(&mut self, kept: u32, numbers: Vec<u32>) -> Vec<u32> {
        let trees: Vec<Tree> = numbers.into_iter().map(|number| self.tree(number, kept)).collect();
        for node in self.nodes.drain(kept as usize..) {
            let parts = if let Node::Record(fields) = node { fields.len() } else { 0 };
            self.memory_bytes -= NODE_BYTES + PART_BYTES * parts;
        }
        self.weights.truncate(kept as usize);
        self.records.retain(|_, number| *number < kept);
        self.arrays.retain(|_, number| *number < kept);
        self.maps.retain(|_, number| *number < kept);
        self.forget();
        trees.into_iter().map(|tree| self.plant(tree)).collect()
    }

    /// The projection that makes an exact type out of a merged one, as JSON.
    fn projection<'py>(&mut self, py: Python<'py>, own: u32, merged: u32) -> Bound<'py, PyBytes> {
        let mut out = Vec::new();
        self.write_projection(own, merged, &mut out);
        PyBytes::new(py, &out)
    }

    /// Take the order apart by PartitionKey, and join the types of each.
    fn runs(
        &mut self, order: &Bound<'_, PyAny>, key_of: &Bound<'_, PyAny>, type_of: &Bound<'_, PyAny>, sizes: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Run>> {
        let (order, key_of) = (column::<u32>(order)?, column::<u32>(key_of)?);
        let (type_of, sizes) = (column::<u32>(type_of)?, column::<u32>(sizes)?);
        let mut found: Vec<Run> = Vec::new();
        let mut joined: HashMap<Vec<u32>, Option<u32>, Seed> = HashMap::with_hasher(self.records.hasher().clone());
        let mut begin = 0;
        for rows in order.chunk_by(|&one, &other| key_of[one as usize] == key_of[other as usize]) {
            let bytes = rows.iter().map(|&row| u64::from(sizes[row as usize])).sum();
            let mut types: Vec<u32> = rows.iter().map(|&row| type_of[row as usize]).collect();
            types.sort_unstable();
            types.dedup();
            let whole = match types[..] {
                [only] => Some(only),
                _ => match joined.get(&types) {
                    Some(&known) => known,
                    None => {
                        let whole = self.join(types.clone());
                        joined.insert(types, whole);
                        whole
                    }
                },
            };
            found.push((key_of[rows[0] as usize], begin, begin + rows.len(), bytes, whole));
            begin += rows.len();
        }
        Ok(found)
    }
}

/// The rows of one PartitionKey as [begin, end) of the order: (key, begin, end, bytes of texts, joined type).
type Run = (u32, usize, usize, u64, Option<u32>);

/// Hashes numbers that are our own: nobody outside chooses them, so that a product for each is enough.
#[derive(Clone)]
pub struct Seed(u64);

pub struct Words(u64);

impl Default for Seed {
    fn default() -> Self {
        Seed(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seed {
    type Hasher = Words;

    fn build_hasher(&self) -> Words {
        Words(self.0)
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
