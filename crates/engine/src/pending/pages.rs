//! All pages of a pending list in the order of ids: finds the page of an id, splits and merges pages.
//!
//! A copy of the list shares the pages. Before a list changes a shared page, it makes its own copy of that
//! page.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::chunk::Chunk;
use super::page::{Page, RowPosition};
use super::{ConsumerHandle, Filter, PendingEntry, allocation_bytes};
use crate::StreamId;

/// Size of a shared page: the page and the two counters of its `Arc`.
const SHARED_BYTES: usize = size_of::<Page>() + 2 * size_of::<usize>();

#[derive(Clone, Default)]
pub(super) struct Pages {
    /// No page is empty. Neighbours that are small enough are merged.
    pages: Vec<Arc<Page>>,
    /// Index of the page that was last searched for a change. Only a hint: changes are often near each other.
    recent: usize,
}

impl Pages {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Page> {
        self.pages.iter().map(|page| &**page)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Page> {
        self.pages.get(index).map(|page| &**page)
    }

    /// Returns the only page that can hold `id`; `None` if there are no pages.
    pub(super) fn page_of(&self, id: StreamId) -> Option<&Page> {
        self.get(self.page_index(id))
    }

    pub(super) fn first(&self) -> Option<PendingEntry> {
        self.pages.first().map(|page| page.first())
    }

    pub(super) fn last(&self) -> Option<PendingEntry> {
        self.pages.last().map(|page| page.last())
    }

    pub(super) fn last_id(&self) -> Option<StreamId> {
        self.pages.last().map(|page| page.last_id())
    }

    pub(super) fn push(&mut self, chunk: Chunk) {
        match self.pages.last_mut() {
            Some(last) if !last.is_full() => Arc::make_mut(last).push(chunk),
            _ => self.pages.push(Arc::new(Page::of(vec![chunk]))),
        }
    }

    /// Adds or replaces a row and returns the row as it was stored before. There is at least one page.
    pub(super) fn store(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        let index = self.page_index(entry.id);
        self.recent = index;
        let page = Arc::make_mut(&mut self.pages[index]);
        let replaced = page.set(entry);
        if page.is_overfull() {
            let upper = page.split();
            self.pages.insert(index + 1, Arc::new(upper));
            self.merge_around(index + 1);
        }
        if replaced.is_none() {
            self.merge_around(index);
        }
        replaced
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let index = self.page_index(id);
        self.recent = index;
        let page = Arc::make_mut(self.pages.get_mut(index)?);
        let chunks = page.chunk_count();
        let removed = page.remove(id)?;
        if page.chunk_count() != chunks {
            self.update_after_chunk_removal(index);
        }
        Some(removed)
    }

    #[cold]
    fn update_after_chunk_removal(&mut self, index: usize) {
        if self.pages[index].is_empty() {
            self.drop_page(index);
        }
        self.merge_around(index);
    }

    pub(super) fn remove_consumer(&mut self, consumer: ConsumerHandle) -> u64 {
        let candidates = self.pages.iter_mut().filter(|page| page.may_have(consumer));
        let removed = candidates.map(|page| Arc::make_mut(page).remove_consumer(consumer)).sum();
        if removed > 0 {
            self.pages.retain(|page| !page.is_empty());
            (0..self.pages.len()).rev().for_each(|index| self.merge_with_next(index));
            self.pages.shrink_to_fit();
        }
        removed
    }

    pub(super) fn walk(
        &self,
        from: StreamId,
        filter: &Filter,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (index, mut position) = self.seek(from);
        for page in self.pages.iter().skip(index) {
            if page.may_match(filter) {
                page.walk(position, filter, visit)?;
            }
            position = RowPosition::START;
        }
        ControlFlow::Continue(())
    }

    pub(super) fn forget_ready(&self) {
        self.iter().for_each(Page::forget_ready);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let pages: usize = self.pages.iter().map(|page| page.allocated_bytes(allocation_bytes)).sum();
        pages
            + self.pages.len() * allocation_bytes(SHARED_BYTES)
            + allocation_bytes(self.pages.capacity() * size_of::<Arc<Page>>())
    }

    /// Returns the index of the only page that can hold `id`; 0 if there are no pages.
    #[inline]
    fn page_index(&self, id: StreamId) -> usize {
        let first_id = |index: usize| self.get(index).map(Page::first_id);
        let starts_before = first_id(self.recent).is_some_and(|first| first <= id);
        if starts_before && first_id(self.recent + 1).is_none_or(|next| id < next) {
            return self.recent;
        }
        self.pages.partition_point(|page| page.first_id() <= id).saturating_sub(1)
    }

    fn seek(&self, id: StreamId) -> (usize, RowPosition) {
        let index = self.page_index(id);
        (index, self.get(index).map_or(RowPosition::START, |page| page.seek(id)))
    }

    fn merge_around(&mut self, index: usize) {
        self.merge_with_next(index);
        if index > 0 {
            self.merge_with_next(index - 1);
        }
    }

    fn merge_with_next(&mut self, index: usize) {
        if let Some([page, next]) = self.pages.get(index..).and_then(|rest| rest.first_chunk())
            && page.can_merge(next)
        {
            let next = self.drop_page(index + 1);
            Arc::make_mut(&mut self.pages[index]).merge(Arc::unwrap_or_clone(next));
        }
    }

    fn drop_page(&mut self, index: usize) -> Arc<Page> {
        let page = self.pages.remove(index);
        if self.pages.len() * 2 <= self.pages.capacity() {
            self.pages.shrink_to(self.pages.len() + self.pages.len() / 4);
        }
        page
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.iter().try_for_each(Page::check)?;
        for pair in self.pages.windows(2) {
            if pair[0].last_id() >= pair[1].first_id() {
                return Err(format!(
                    "a page ends at {}, after the first id of the next page",
                    pair[0].last_id()
                ));
            }
            if pair[0].can_merge(&pair[1]) {
                return Err(format!(
                    "the page that begins at {} should be merged with the page before it",
                    pair[1].first_id()
                ));
            }
        }
        Ok(())
    }
}
