// Package erofs writes read-only file systems for Linux's erofs: uncompressed, one file each. Contents are written as
// they come and the tree behind them, so that nothing is kept in memory but what describes a file. The same contents in
// the same order, and the same tree, give the same bytes.
//
// The format: https://docs.kernel.org/filesystems/erofs.html and fs/erofs/erofs_fs.h of the kernel.
package erofs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
)

// Types of files, as in Node.Mode.
const (
	TypeMask    = 0o170000
	TypeDir     = 0o040000
	TypeRegular = 0o100000
	TypeSymlink = 0o120000
	TypeFIFO    = 0o010000
)

// Limits of the format, and of Linux.
const (
	MaxName   = 255
	MaxTarget = 4095
	// MaxXattrs bounds the names and values of all attributes of one file.
	MaxXattrs = 64 << 10
)

const (
	blockSize  = 4096
	superblock = 1024 // its offset
	magic      = 0xe0f5e1e2
	inodeSize  = 64
	slotSize   = 32 // inodes are numbered by these

	layoutPlain  = 0 // data in blocks of its own
	layoutInline = 2 // the last part of the data lies behind the inode
	extended     = 1 // the larger form of inodes
)

// Node is a file, with its names in the Children of directories: a file with several has several links.
type Node struct {
	Mode     uint32 // type and permissions, as stat(2) has them
	UID, GID uint32
	MTime    int64 // seconds since 1970
	Nano     uint32
	Xattrs   map[string]string
	Target   string           // of a symbolic link
	Children map[string]*Node // of a directory

	Size  int64 // of a regular file; set by Writer.Content
	block int64

	// Origin is for whoever builds the tree.
	Origin struct{ Layer, Index int32 }

	nid   int64
	links uint32
	tail  int64 // bytes of data behind the inode
}

// Writer writes one file system.
type Writer struct {
	f    io.WriterAt
	next int64 // block
	buf  []byte
}

// NewWriter returns the writer of an empty file.
func NewWriter(f io.WriterAt) *Writer { return &Writer{f: f, next: 1, buf: make([]byte, 256<<10)} }

// Written returns how many bytes the contents have so far.
func (w *Writer) Written() int64 { return w.next * blockSize }

// Content writes the content of a regular file, which has size bytes. Blocks of zeros become holes of the file that is
// written to.
func (w *Writer) Content(n *Node, r io.Reader, size int64) error {
	n.Size, n.block = size, w.next
	for at := int64(0); at < size; {
		part := w.buf[:min(int64(len(w.buf)), size-at)]
		if _, err := io.ReadFull(r, part); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if err := w.sparse(part, w.next*blockSize+at); err != nil {
			return err
		}
		at += int64(len(part))
	}
	w.next += blocks(size)
	return nil
}

var zeros = make([]byte, blockSize)

func (w *Writer) sparse(b []byte, at int64) error {
	for len(b) > 0 {
		n := 0 // how many bytes lie before a block of zeros
		for n < len(b) && !bytes.Equal(b[n:min(n+blockSize, len(b))], zeros[:min(blockSize, len(b)-n)]) {
			n = min(n+blockSize, len(b))
		}
		if n > 0 {
			if _, err := w.f.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		n = min(n+blockSize, len(b))
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func blocks(size int64) int64 { return (size + blockSize - 1) / blockSize }

// Finish writes the tree and returns the size of the file system. created is its time, in seconds since 1970.
func (w *Writer) Finish(root *Node, created int64) (size int64, err error) {
	if root.Mode&TypeMask != TypeDir {
		return 0, errors.New("erofs: the root is not a directory")
	}
	nodes, parents, err := number(root)
	if err != nil {
		return 0, err
	}
	for _, n := range nodes { // what does not lie behind its inode has its blocks before all inodes
		if n.Mode&TypeMask == TypeRegular || n.tail == n.dataSize() {
			continue
		}
		data := n.data(parents[n])
		n.block = w.next
		if err := w.sparse(data[:int64(len(data))-n.tail], w.next*blockSize); err != nil {
			return 0, err
		}
		w.next += blocks(int64(len(data)) - n.tail)
	}
	meta := w.next
	end, err := w.inodes(nodes, parents, meta*blockSize)
	if err != nil {
		return 0, err
	}
	total := blocks(end)
	if total > math.MaxUint32 {
		return 0, errors.New("erofs: the file system is too large")
	}
	if pad := total*blockSize - end; pad > 0 {
		if _, err := w.f.WriteAt(zeros[:pad], end); err != nil {
			return 0, err
		}
	}
	var b [128]byte
	le := binary.LittleEndian
	le.PutUint32(b[0:], magic)
	b[12] = 12 // block size, as a power of two
	le.PutUint16(b[14:], uint16(root.nid))
	le.PutUint64(b[16:], uint64(len(nodes)))
	le.PutUint64(b[24:], uint64(max(created, 0)))
	le.PutUint32(b[36:], uint32(total))
	le.PutUint32(b[40:], uint32(meta))
	_, err = w.f.WriteAt(append(make([]byte, superblock), b[:]...), 0)
	return total * blockSize, err
}

// number lists the tree's files, each once, counts their links and gives each its place among the inodes.
func number(root *Node) (nodes []*Node, parents map[*Node]*Node, err error) {
	parents = map[*Node]*Node{}
	at := int64(0)
	var visit func(n, parent *Node) error
	visit = func(n, parent *Node) error {
		if n.links++; n.links > 1 {
			return nil
		}
		if n.Mode&TypeMask == TypeDir {
			parents[n], n.links = parent, 2
		}
		if len(n.Target) > MaxTarget || n.xattrSize() > MaxXattrs {
			return errors.New("erofs: a link's target or attributes are too long")
		}
		at = n.place(at)
		nodes = append(nodes, n)
		for _, name := range n.names() {
			if !validName(name) {
				return fmt.Errorf("erofs: a file cannot be named %q", name)
			}
			c := n.Children[name]
			if c.Mode&TypeMask == TypeDir {
				if c.links > 0 {
					return errors.New("erofs: a directory has two names")
				}
				n.links++
			}
			if err := visit(c, n); err != nil {
				return err
			}
		}
		return nil
	}
	return nodes, parents, visit(root, root)
}

func validName(name string) bool {
	return name != "" && len(name) <= MaxName && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// place gives the inode the first place at or behind an offset, and returns where it ends.
func (n *Node) place(at int64) (end int64) {
	head, tail := inodeSize+n.xattrSize(), int64(0)
	if n.Mode&TypeMask != TypeRegular {
		tail = n.dataSize() % blockSize
	}
	if head%blockSize+tail > blockSize {
		tail = 0
	}
	at = (at + inodeSize - 1) &^ (inodeSize - 1)
	if (at+head)%blockSize+tail > blockSize {
		at = (at + blockSize - 1) &^ (blockSize - 1) // what lies behind an inode lies in one block
	}
	n.nid, n.tail = at/slotSize, tail
	return at + head + tail
}

// inodes writes all inodes, with what lies behind them, from an offset on, and returns where they end.
func (w *Writer) inodes(nodes []*Node, parents map[*Node]*Node, from int64) (end int64, err error) {
	out, at := bufio.NewWriterSize(io.NewOffsetWriter(w.f, from), len(w.buf)), int64(0)
	for number, n := range nodes {
		if _, err := out.Write(make([]byte, n.nid*slotSize-at)); err != nil {
			return 0, err
		}
		b := n.inode(number + 1)
		b = n.appendXattrs(b)
		if n.tail > 0 {
			data := n.data(parents[n])
			b = append(b, data[int64(len(data))-n.tail:]...)
		}
		if _, err := out.Write(b); err != nil {
			return 0, err
		}
		at = n.nid*slotSize + int64(len(b))
	}
	return from + at, out.Flush()
}

func (n *Node) inode(number int) []byte {
	var b [inodeSize]byte
	le := binary.LittleEndian
	layout, size := uint16(layoutPlain), n.dataSize()
	if n.tail > 0 {
		layout = layoutInline
	}
	le.PutUint16(b[0:], extended|layout<<1)
	if x := n.xattrSize(); x > 0 {
		le.PutUint16(b[2:], uint16((x-xattrHead)/4+1))
	}
	le.PutUint16(b[4:], uint16(n.Mode))
	le.PutUint64(b[8:], uint64(size))
	if size > n.tail {
		le.PutUint32(b[16:], uint32(n.block))
	}
	le.PutUint32(b[20:], uint32(number))
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	le.PutUint64(b[32:], uint64(n.MTime))
	le.PutUint32(b[40:], n.Nano)
	le.PutUint32(b[44:], n.links)
	return b[:]
}

// dataSize is how large the file is, as stat(2) has it.
func (n *Node) dataSize() int64 {
	switch n.Mode & TypeMask {
	case TypeRegular:
		return n.Size
	case TypeSymlink:
		return int64(len(n.Target))
	case TypeDir:
		size := int64(0)
		for block := range entryBlocks(n.entries()) {
			if size%blockSize != 0 {
				size += blockSize - size%blockSize
			}
			for _, name := range block {
				size += entrySize + int64(len(name))
			}
		}
		return size
	}
	return 0
}

// data is the content of a link or a directory.
func (n *Node) data(parent *Node) []byte {
	if n.Mode&TypeMask != TypeDir {
		return []byte(n.Target)
	}
	var b []byte
	le := binary.LittleEndian
	for block := range entryBlocks(n.entries()) {
		if over := len(b) % blockSize; over > 0 {
			b = append(b, zeros[over:]...)
		}
		name := entrySize * len(block)
		for _, e := range block {
			c := n.Children[e]
			switch e {
			case ".":
				c = n
			case "..":
				c = parent
			}
			b = le.AppendUint64(b, uint64(c.nid))
			b = le.AppendUint16(b, uint16(name))
			b = append(b, entryType[c.Mode&TypeMask], 0)
			name += len(e)
		}
		for _, e := range block {
			b = append(b, e...)
		}
	}
	return b
}

const entrySize = 12 // of a directory, without its name

// entryType is the type of a file as directories have it.
var entryType = map[uint32]byte{TypeRegular: 1, TypeDir: 2, TypeFIFO: 5, TypeSymlink: 7}

func (n *Node) names() []string { return slices.Sorted(maps.Keys(n.Children)) }

func (n *Node) entries() []string {
	all := append(n.names(), ".", "..")
	slices.Sort(all)
	return all
}

// entryBlocks are the names of a directory, as many as a block has room for at a time.
func entryBlocks(names []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for len(names) > 0 {
			count, size := 0, 0
			for count < len(names) && size+entrySize+len(names[count]) <= blockSize {
				size += entrySize + len(names[count])
				count++
			}
			if !yield(names[:count]) {
				return
			}
			names = names[count:]
		}
	}
}

const xattrHead = 12

// xattrPrefixes begin the names of attributes, by their number in the format.
var xattrPrefixes = []string{1: "user.", 2: "system.posix_acl_access", 3: "system.posix_acl_default", 6: "security."}

// KnownXattr reports whether a file can have an attribute with this name.
func KnownXattr(name string) bool { return xattrIndex(name) > 0 && len(name) <= MaxName }

func xattrIndex(name string) int {
	return slices.IndexFunc(xattrPrefixes, func(p string) bool {
		return p != "" && strings.HasPrefix(name, p) && (strings.HasSuffix(p, ".") == (name != p))
	})
}

// xattrSize is what the attributes take behind the inode.
func (n *Node) xattrSize() int64 {
	if len(n.Xattrs) == 0 {
		return 0
	}
	size := int64(xattrHead)
	for name, value := range n.Xattrs {
		index := xattrIndex(name)
		if index < 0 {
			return MaxXattrs + 1
		}
		size += (4 + int64(len(name)-len(xattrPrefixes[index])+len(value)) + 3) &^ 3
	}
	return size
}

func (n *Node) appendXattrs(b []byte) []byte {
	if len(n.Xattrs) == 0 {
		return b
	}
	b = append(b, make([]byte, xattrHead)...)
	for _, name := range slices.Sorted(maps.Keys(n.Xattrs)) {
		value, index := n.Xattrs[name], xattrIndex(name)
		rest := name[len(xattrPrefixes[index]):]
		b = append(b, byte(len(rest)), byte(index))
		b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
		b = append(append(b, rest...), value...)
		b = append(b, zeros[:-len(b)&3]...)
	}
	return b
}
