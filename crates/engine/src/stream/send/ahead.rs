//! Reads blocks ahead: several at a time, handed on in the order of the stream.

use std::collections::VecDeque;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use parking_lot::{Condvar, Mutex};

use super::item::{DataBlock, Item};
use crate::dmu::DmuContext;
use crate::error::Result;
use crate::zio::Bookmark;

/// What may be read and not written yet, in bytes.
#[doc(alias = "zfs_send_queue_length")]
const AHEAD_BYTES_MAX: u64 = 16 << 20;
/// How many parts of the stream may wait behind one that is read.
const AHEAD_ITEMS_MAX: usize = 4096;

/// How the contents of a block are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Not at all: of a dry run, or the pointer has all.
    None,
    /// As they are used.
    Plain,
    /// As they are on disk.
    Physical,
}

type Read = Result<Arc<Vec<u8>>>;

/// A block that is being read.
#[derive(Default)]
struct Flight {
    done: Mutex<Option<Read>>,
    landed: Condvar,
}

enum Contents {
    None,
    Flying(Arc<Flight>),
    /// No reader had time: the sender, which needs it, reads it.
    Later(Form, BlkPtr, Bookmark),
}

/// A part of the stream, and its contents when they are there.
struct Waiting {
    item: Item,
    contents: Contents,
    bytes: u64,
}

/// See the module.
pub(super) struct Ahead<'a> {
    context: &'a Arc<DmuContext>,
    objset: u64,
    waiting: VecDeque<Waiting>,
    bytes: u64,
}

impl<'a> Ahead<'a> {
    /// With nothing read yet.
    pub(super) fn new(context: &'a Arc<DmuContext>, objset: u64) -> Self {
        Ahead { context, objset, waiting: VecDeque::new(), bytes: 0 }
    }

    /// Begins to read what a part needs, in the form that `form` says.
    pub(super) fn put(&mut self, item: Item, form: impl Fn(&DataBlock) -> Form) {
        let block = match &item {
            Item::Data(block) | Item::Object { spill: Some(block), .. } => Some(block),
            _ => None,
        };
        let form = block.map_or(Form::None, &form);
        let (contents, bytes) = match block {
            Some(block) if form != Form::None => (self.begin(block, form), block.bytes),
            _ => (Contents::None, 0),
        };
        self.bytes += bytes;
        self.waiting.push_back(Waiting { item, contents, bytes });
    }

    fn begin(&self, block: &DataBlock, form: Form) -> Contents {
        let at = Bookmark { objset: self.objset, object: block.object, level: 0, block: block.block };
        let flight = Arc::new(Flight::default());
        let (context, landing, pointer) = (self.context.clone(), flight.clone(), block.pointer);
        let job = move || {
            let read = read(&context, form, &pointer, &at);
            *landing.done.lock() = Some(read);
            landing.landed.notify_all();
        };
        let is_flying = self.context.io.readers().submit(job);
        if is_flying { Contents::Flying(flight) } else { Contents::Later(form, block.pointer, at) }
    }

    /// Is it time to hand on the first?
    pub(super) fn is_full(&self) -> bool {
        self.bytes > AHEAD_BYTES_MAX || self.waiting.len() > AHEAD_ITEMS_MAX
    }

    /// The first, with its contents.
    pub(super) fn next(&mut self) -> Option<Result<(Item, Option<Arc<Vec<u8>>>)>> {
        let Waiting { item, contents, bytes } = self.waiting.pop_front()?;
        self.bytes -= bytes;
        let contents = match contents {
            Contents::None => return Some(Ok((item, None))),
            Contents::Later(form, pointer, at) => read(self.context, form, &pointer, &at),
            Contents::Flying(flight) => {
                let mut done = flight.done.lock();
                loop {
                    match done.take() {
                        Some(read) => break read,
                        None => flight.landed.wait(&mut done),
                    }
                }
            }
        };
        Some(contents.map(|contents| (item, Some(contents))))
    }
}

fn read(context: &DmuContext, form: Form, pointer: &BlkPtr, at: &Bookmark) -> Read {
    match form {
        Form::Physical => context.cache.physical_once(pointer, at),
        Form::Plain | Form::None => context.cache.read_once(pointer, at),
    }
}
