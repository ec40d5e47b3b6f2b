//! The texts of a batch's rows: those since the last spill in memory, one behind the other, those before on disk.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::seal::column;

const CHUNK_BYTES: usize = 1024 * 1024;

/// Where the text of a row stands in memory.
struct Place {
    chunk: u32,
    start: u32,
    size: u32,
}

/// Rows up to `next` on disk, behind those of the run before: their texts in the order in which rows are sealed.
struct Run {
    next: usize,
    pieces: Vec<Py<PyAny>>,
}

/// The texts of one batch; rows are numbered as they come.
#[pyclass]
pub struct Texts {
    chunks: Vec<Vec<u8>>,
    places: Vec<Place>,
    bytes: usize,
    runs: Vec<Run>,
}

#[pymethods]
impl Texts {
    #[new]
    fn new() -> Self {
        Texts { chunks: Vec::new(), places: Vec::new(), bytes: 0, runs: Vec::new() }
    }

    /// Keep the text of the next row, which is UTF-8.
    #[pyo3(name = "append")]
    fn append_checked(&mut self, text: &[u8]) -> PyResult<()> {
        std::str::from_utf8(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.append(text, &[]);
        Ok(())
    }

    /// How many texts are in memory: those of the last rows.
    fn __len__(&self) -> usize {
        self.places.len()
    }

    /// What is taken of memory; what of a chunk was never written is in no page.
    #[getter]
    fn memory_bytes(&self) -> usize {
        self.bytes + self.places.capacity() * size_of::<Place>()
    }

    /// Bring all in memory to disk by `append`, in pieces of at most so many bytes, or of one text.
    ///
    /// `order` are their rows as they are sealed. Where `append` raises, all is as before.
    fn spill(
        &mut self, py: Python<'_>, order: &Bound<'_, PyAny>, append: &Bound<'_, PyAny>, piece_bytes: usize,
    ) -> PyResult<()> {
        let first = self.first();
        let texts: Vec<&[u8]> = column::<u32>(order)?.iter().map(|&row| self.at(&self.places[row as usize - first])).collect();
        let (mut pieces, mut rest) = (Vec::new(), texts.as_slice());
        while !rest.is_empty() {
            let (some, others) = rest.split_at(fitting(rest, piece_bytes));
            let size = some.iter().map(|text| text.len()).sum();
            let piece = PyBytes::new_with(py, size, |mut into| {
                for text in some {
                    let (here, behind) = into.split_at_mut(text.len());
                    here.copy_from_slice(text);
                    into = behind;
                }
                Ok(())
            })?;
            pieces.push(append.call1((piece,))?.unbind());
            rest = others;
        }
        self.runs.push(Run { next: first + self.places.len(), pieces });
        self.chunks = Vec::new();
        self.places = Vec::new();
        self.bytes = 0;
        Ok(())
    }
}

impl Texts {
    /// Keep the text of the next row, which is known to be UTF-8, in two parts.
    pub fn append(&mut self, text: &[u8], end: &[u8]) {
        let size = text.len() + end.len();
        let has_room = self.chunks.last().is_some_and(|chunk| chunk.capacity() - chunk.len() >= size);
        if !has_room {
            self.chunks.push(Vec::with_capacity(size.max(CHUNK_BYTES)));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        self.places.push(Place { chunk: number as u32, start: chunk.len() as u32, size: size as u32 });
        chunk.extend_from_slice(text);
        chunk.extend_from_slice(end);
        self.bytes += size;
    }

    /// The first row in memory.
    fn first(&self) -> usize {
        self.runs.last().map_or(0, |run| run.next)
    }

    fn at(&self, place: &Place) -> &[u8] {
        &self.chunks[place.chunk as usize][place.start as usize..][..place.size as usize]
    }
}

/// How many texts make a piece of at most so many bytes; at least one.
fn fitting(texts: &[&[u8]], piece_bytes: usize) -> usize {
    let mut size = 0;
    let mut fits = |text: &&[u8]| {
        size += text.len();
        size <= piece_bytes
    };
    texts.iter().take_while(|text| fits(text)).count().max(1)
}

/// What of a run was read: its pieces before `next`, of the last of them the bytes before `at`.
#[derive(Default)]
struct Reading {
    next: usize,
    data: Option<PyBackedBytes>,
    at: usize,
}

/// Reads all texts in the order in which rows are sealed; each run once, from its beginning to its end.
pub struct Reader {
    texts: Py<Texts>,
    read: Py<PyAny>,
    readings: Vec<Reading>,
}

impl Reader {
    /// `read` gives the bytes of a piece.
    pub fn new(py: Python<'_>, texts: Py<Texts>, read: Py<PyAny>) -> Self {
        let runs = texts.borrow(py).runs.len();
        Reader { texts, read, readings: std::iter::repeat_with(Reading::default).take(runs).collect() }
    }

    /// Lend the texts, which do not change while they are read.
    pub fn texts<'py>(&self, py: Python<'py>) -> PyRef<'py, Texts> {
        self.texts.bind(py).borrow()
    }

    /// Read the text of the next row, of this size.
    pub fn next<'a>(&'a mut self, py: Python<'_>, texts: &'a Texts, row: usize, size: usize) -> PyResult<&'a [u8]> {
        if row >= texts.first() {
            return Ok(texts.at(&texts.places[row - texts.first()]));
        }
        let number = texts.runs.partition_point(|run| run.next <= row);
        let reading = &mut self.readings[number];
        if reading.data.as_ref().is_none_or(|data| reading.at == data.len()) {
            let piece = texts.runs[number].pieces.get(reading.next).ok_or_else(|| missing(row))?;
            reading.data = Some(self.read.call1(py, (piece,))?.extract(py)?);
            reading.next += 1;
            reading.at = 0;
        }
        let begin = reading.at;
        reading.at += size;
        let data = reading.data.as_deref().unwrap_or_default();
        data.get(begin..reading.at).ok_or_else(|| missing(row))
    }
}

fn missing(row: usize) -> PyErr {
    PyValueError::new_err(format!("the text of row {row} is not where it was written"))
}
