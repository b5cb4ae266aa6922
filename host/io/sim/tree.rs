//! Directories: names, what they lead to, and which of them are sure to survive.
//!
//! A file is a node; an entry of a directory leads to it. Syncing a file says nothing about its
//! entry, and syncing a directory says nothing about the directory's own entry. Absolute and
//! relative paths are the same here: both start at the one root, which is always there.

use super::file::SimFile;
use super::random::Random;
use crate::io::{DirectoryEntry, EntryKind};
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// Number of a node. Never reused.
pub(super) type NodeId = u64;

const ROOT: NodeId = 0;

/// What an entry leads to.
#[derive(Debug)]
pub(super) enum Node {
    File(SimFile),
    Directory(Directory),
    /// A symbolic link, say: there, and never followed.
    Other,
}

/// Entries by name.
#[derive(Debug, Default)]
pub(super) struct Directory {
    volatile: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    /// Entries made, and removed, since the last sync, in order.
    pending: Vec<(String, Option<NodeId>)>,
}

impl Directory {
    fn set(&mut self, name: &str, node: Option<NodeId>) {
        set(&mut self.volatile, name, node);
        self.pending.push((name.to_owned(), node));
    }

    /// Makes pending entries durable.
    fn sync(&mut self) {
        for (name, node) in self.pending.drain(..) {
            set(&mut self.durable, &name, node);
        }
    }

    /// Draws which pending entries are durable.
    fn settle(&mut self, random: &mut Random) {
        for (name, node) in self.pending.drain(..) {
            if random.coin() {
                set(&mut self.durable, &name, node);
            }
        }
    }

    fn all_nodes(&self) -> impl Iterator<Item = NodeId> {
        let pending = self.pending.iter().filter_map(|(_, node)| *node);
        self.volatile.values().chain(self.durable.values()).copied().chain(pending)
    }
}

fn set(entries: &mut BTreeMap<String, NodeId>, name: &str, node: Option<NodeId>) {
    match node {
        Some(node) => drop(entries.insert(name.to_owned(), node)),
        None => drop(entries.remove(name)),
    }
}

/// Which entries a path is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entries {
    /// Those that programs see.
    Volatile,
    /// Those that are sure to survive.
    Durable,
}

/// All nodes of a drive.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    node_next: NodeId,
}

impl Tree {
    /// Makes a tree of one empty directory.
    pub(super) fn new() -> Self {
        let root = Node::Directory(Directory::default());
        Self { nodes: BTreeMap::from([(ROOT, root)]), node_next: ROOT + 1 }
    }

    /// Returns the node at a path.
    pub(super) fn find(&self, path: &Path, entries: Entries) -> Result<NodeId, Errno> {
        let mut node = ROOT;
        for name in names(path)? {
            let directory = self.directory(node)?;
            let entries = match entries {
                Entries::Volatile => &directory.volatile,
                Entries::Durable => &directory.durable,
            };
            node = *entries.get(name).ok_or(Errno::ENOENT)?;
        }
        Ok(node)
    }

    /// Returns a file's node.
    pub(super) fn file(&self, node: NodeId) -> Result<&SimFile, Errno> {
        match &self.nodes[&node] {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(Errno::EISDIR),
            Node::Other => Err(Errno::ELOOP),
        }
    }

    /// Returns a file that is open, so is one.
    pub(super) fn file_mut(&mut self, node: NodeId) -> &mut SimFile {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => file,
            other => unreachable!("an open file's node is kept and stays a file, not {other:?}"),
        }
    }

    /// Notes that a file's change was reported, if the file is still there.
    pub(super) fn report(&mut self, node: NodeId, sequence: u64) {
        if let Some(Node::File(file)) = self.nodes.get_mut(&node) {
            file.report(sequence);
        }
    }

    /// Returns every file.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut SimFile)> {
        self.nodes.iter_mut().filter_map(|(node, kind)| match kind {
            Node::File(file) => Some((*node, file)),
            Node::Directory(_) | Node::Other => None,
        })
    }

    /// Returns whether a node is a directory.
    pub(super) fn is_directory(&self, node: NodeId) -> bool {
        matches!(self.nodes[&node], Node::Directory(_))
    }

    fn directory(&self, node: NodeId) -> Result<&Directory, Errno> {
        match &self.nodes[&node] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(Errno::ENOTDIR),
            Node::Other => Err(Errno::ELOOP),
        }
    }

    fn directory_mut(&mut self, node: NodeId) -> Result<&mut Directory, Errno> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::Other) => Err(Errno::ELOOP),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Makes a directory and those above it.
    pub(super) fn make_directories(&mut self, path: &Path) -> Result<(), Errno> {
        let mut node = ROOT;
        for name in names(path)? {
            node = match self.directory(node)?.volatile.get(name) {
                Some(&next) => next,
                None => self.add(node, name, Node::Directory(Directory::default()))?,
            };
        }
        self.directory(node).map(drop).map_err(|_| Errno::EEXIST)
    }

    /// Makes a node at a path whose last name is free.
    pub(super) fn make(&mut self, path: &Path, kind: Node) -> Result<NodeId, Errno> {
        let (parent, name) = self.parent(path)?;
        self.add(parent, &name, kind)
    }

    fn add(&mut self, parent: NodeId, name: &str, kind: Node) -> Result<NodeId, Errno> {
        let node = self.node_next;
        self.directory_mut(parent)?.set(name, Some(node));
        self.node_next += 1;
        self.nodes.insert(node, kind);
        Ok(node)
    }

    fn parent(&self, path: &Path) -> Result<(NodeId, String), Errno> {
        let mut names = names(path)?;
        let name = names.pop().ok_or(Errno::EISDIR)?.to_owned();
        let parent = names.iter().collect::<std::path::PathBuf>();
        Ok((self.find(&parent, Entries::Volatile)?, name))
    }

    /// Removes the entry of a file or link.
    pub(super) fn remove_file(&mut self, path: &Path) -> Result<(), Errno> {
        let node = self.find(path, Entries::Volatile)?;
        if let Node::Directory(_) = self.nodes[&node] {
            return Err(Errno::EISDIR);
        }
        self.remove_entry(path)
    }

    /// Removes the entry of an empty directory.
    pub(super) fn remove_directory(&mut self, path: &Path) -> Result<(), Errno> {
        let node = self.find(path, Entries::Volatile)?;
        if !self.directory(node)?.volatile.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.remove_entry(path)
    }

    fn remove_entry(&mut self, path: &Path) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        self.directory_mut(parent)?.set(&name, None);
        Ok(())
    }

    /// Lists a directory.
    pub(super) fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, Errno> {
        let directory = self.directory(self.find(path, Entries::Volatile)?)?;
        let entries = directory.volatile.iter().map(|(name, node)| {
            let kind = match self.nodes[node] {
                Node::File(_) => EntryKind::File,
                Node::Directory(_) => EntryKind::Directory,
                Node::Other => EntryKind::Other,
            };
            DirectoryEntry { name: name.clone(), kind }
        });
        Ok(entries.collect())
    }

    /// Makes a directory's entries durable.
    pub(super) fn sync_directory(&mut self, path: &Path) -> Result<(), Errno> {
        let node = self.find(path, Entries::Volatile)?;
        self.directory_mut(node)?.sync();
        Ok(())
    }

    /// Draws which entries a failed sync made durable; no later sync covers the others, though
    /// programs go on seeing them.
    pub(super) fn fail_sync_directory(&mut self, path: &Path, random: &mut Random) {
        if let Ok(node) = self.find(path, Entries::Volatile)
            && let Ok(directory) = self.directory_mut(node)
        {
            directory.settle(random);
        }
    }

    /// Makes every entry durable.
    pub(super) fn sync_all(&mut self) {
        for kind in self.nodes.values_mut() {
            if let Node::Directory(directory) = kind {
                directory.sync();
            }
        }
    }

    /// Draws which entries survive a power cut.
    pub(super) fn cut(&mut self, random: &mut Random) {
        for kind in self.nodes.values_mut() {
            if let Node::Directory(directory) = kind {
                directory.settle(random);
                directory.volatile = directory.durable.clone();
            }
        }
        self.forget_unreachable(&BTreeSet::new());
    }

    /// Drops the nodes that no entry leads to and that are not `open`.
    pub(super) fn forget_unreachable(&mut self, open: &BTreeSet<NodeId>) {
        let mut kept = self.reachable(Directory::all_nodes);
        kept.extend(open);
        self.nodes.retain(|node, _| kept.contains(node));
    }

    /// Returns the bytes of blocks that files take up: those that programs see, and `open` ones.
    pub(super) fn allocated(&self, open: &BTreeSet<NodeId>) -> u64 {
        let mut nodes = self.reachable(|directory| directory.volatile.values().copied());
        nodes.extend(open);
        nodes.iter().filter_map(|&node| Some(self.file(node).ok()?.volatile.allocated())).sum()
    }

    /// Returns the nodes that some of the entries lead to from the root.
    fn reachable<'tree, Nodes>(
        &'tree self,
        entries: impl Fn(&'tree Directory) -> Nodes,
    ) -> BTreeSet<NodeId>
    where
        Nodes: Iterator<Item = NodeId>,
    {
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(node) = open.pop() {
            if let Node::Directory(directory) = &self.nodes[&node] {
                open.extend(entries(directory).filter(|&next| reached.insert(next)));
            }
        }
        reached
    }
}

/// Splits a path into names.
fn names(path: &Path) -> Result<Vec<&str>, Errno> {
    path.components()
        .filter(|component| !matches!(component, Component::RootDir | Component::CurDir))
        .map(|component| match component {
            Component::Normal(name) => name.to_str().ok_or(Errno::EILSEQ),
            _ => Err(Errno::EINVAL),
        })
        .collect()
}
