//! Reads blocks ahead: several at a time, handed on in the order of the stream. Those that lie one behind the other are read as one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::item::{DataBlock, Item};
use crate::dmu::{DmuContext, Objset, Presence};
use crate::error::Result;
use crate::zio::{Bookmark, Run};

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

/// A block that is to be read, or is.
#[derive(Default)]
struct Flight {
    done: Mutex<Option<Read>>,
    landed: Condvar,
}

impl Flight {
    fn land(&self, read: Read) {
        *self.done.lock() = Some(read);
        self.landed.notify_all();
    }

    fn wait(&self) -> Read {
        let mut done = self.done.lock();
        loop {
            match done.take() {
                Some(read) => return read,
                None => self.landed.wait(&mut done),
            }
        }
    }
}

/// A part of the stream, and its contents when they are there.
struct Waiting {
    item: Item,
    contents: Option<Arc<Flight>>,
    bytes: u64,
}

/// Blocks that are read as one, all in one form.
struct Flights {
    run: Run,
    form: Form,
    flights: Vec<Arc<Flight>>,
}

impl Flights {
    fn read(self, context: &DmuContext, presence: &Presence) {
        let mut flights = self.flights.iter();
        // A stream that breaks off leaves reads behind, and what it was of may be destroyed then.
        let while_there = |see_to_it: &mut dyn FnMut()| presence.while_there(see_to_it);
        context.cache.read_once(&self.run, self.form == Form::Physical, &while_there, |read| {
            if let Some(flight) = flights.next() {
                flight.land(read);
            }
        });
    }
}

/// See the module.
pub(super) struct Ahead<'a> {
    context: &'a Arc<DmuContext>,
    presence: &'a Arc<Presence>,
    objset: u64,
    waiting: VecDeque<Waiting>,
    /// The last blocks that wait: nobody reads them yet, as more may come that are read with them.
    gathered: Option<Flights>,
    bytes: u64,
}

impl<'a> Ahead<'a> {
    /// With nothing read yet.
    pub(super) fn new(objset: &'a Objset) -> Self {
        Ahead { context: objset.context(), presence: objset.presence(), objset: objset.dataset(), waiting: VecDeque::new(), gathered: None, bytes: 0 }
    }

    /// Begins to read what a part needs, in the form that `form` says.
    pub(super) fn put(&mut self, item: Item, form: impl Fn(&DataBlock) -> Form) {
        let block = match &item {
            Item::Data(block) | Item::Object { spill: Some(block), .. } => Some(block),
            _ => None,
        };
        let needed = block.map(|block| (block, form(block))).filter(|(_, form)| *form != Form::None);
        let bytes = needed.map_or(0, |(block, form)| if form == Form::Physical { block.pointer.physical_size() } else { block.bytes });
        let contents = needed.map(|(block, form)| self.gather(block, form));
        self.bytes += bytes;
        self.waiting.push_back(Waiting { item, contents, bytes });
    }

    fn gather(&mut self, block: &DataBlock, form: Form) -> Arc<Flight> {
        let at = Bookmark { objset: self.objset, object: block.object, level: 0, block: block.block };
        let flight = Arc::new(Flight::default());
        let is_added = self.gathered.as_mut().is_some_and(|gathered| gathered.form == form && gathered.run.add(&block.pointer, &at));
        if !is_added {
            self.launch();
            let mut run = Run::default();
            run.add(&block.pointer, &at);
            self.gathered = Some(Flights { run, form, flights: Vec::new() });
        }
        self.gathered.iter_mut().for_each(|gathered| gathered.flights.push(flight.clone()));
        flight
    }

    /// Has what was gathered read: by a reader if one has time, else at once.
    fn launch(&mut self) {
        let Some(gathered) = self.gathered.take() else { return };
        let (context, presence, shared) = (self.context.clone(), self.presence.clone(), Arc::new(Mutex::new(Some(gathered))));
        let job = {
            let shared = shared.clone();
            move || {
                if let Some(gathered) = shared.lock().take() {
                    gathered.read(&context, &presence);
                }
            }
        };
        if !self.context.io.readers().submit(job)
            && let Some(gathered) = shared.lock().take()
        {
            gathered.read(self.context, self.presence);
        }
    }

    /// Is it time to hand on the first?
    pub(super) fn is_full(&self) -> bool {
        self.bytes > AHEAD_BYTES_MAX || self.waiting.len() > AHEAD_ITEMS_MAX
    }

    /// The first, with its contents.
    pub(super) fn next(&mut self) -> Option<Result<(Item, Option<Arc<Vec<u8>>>)>> {
        let Waiting { item, contents, bytes } = self.waiting.pop_front()?;
        self.bytes -= bytes;
        let Some(flight) = contents else { return Some(Ok((item, None))) };
        if self.gathered.as_ref().is_some_and(|gathered| gathered.flights.iter().any(|other| Arc::ptr_eq(other, &flight))) {
            self.launch();
        }
        Some(flight.wait().map(|contents| (item, Some(contents))))
    }
}
