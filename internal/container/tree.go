package container

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/erofs"
)

// Bounds of an image. The largest that experiments have are of half a million files.
const (
	mostEntries = 1 << 20   // of all layers
	mostWords   = 256 << 20 // bytes of names, links and attributes
	mostDepth   = 128
	mostLayers  = 512
	mostLinks   = 40 // symbolic links on the way to a file, as Linux counts
	// mostSteps bounds the names that are looked up: a million files have some ten million on their ways.
	mostSteps = 64 << 20
)

// tree is the file system that layers add up to.
type tree struct {
	root           *erofs.Node
	layer          int32                 // that is being added
	here           map[entry]bool        // names that it has given
	hidden         map[entry]*erofs.Node // files of lower layers that it has hidden or replaced
	entries, words int
	steps          int // names that were looked up
}

// entry is a name in a directory. A file may have several, of different layers.
type entry struct {
	dir  *erofs.Node
	name string
}

func newTree() *tree {
	return &tree{root: &erofs.Node{Mode: erofs.TypeDir | 0o755, Children: map[string]*erofs.Node{}}}
}

// begin begins a layer.
func (t *tree) begin(layer int32) {
	t.layer, t.here, t.hidden = layer, map[entry]bool{}, map[entry]*erofs.Node{}
}

// set gives a file a name in the layer that is being added, in the place of what was there.
func (t *tree) set(at entry, n *erofs.Node) {
	if old := at.dir.Children[at.name]; old != nil && !t.here[at] {
		t.hidden[at] = old
	}
	at.dir.Children[at.name], t.here[at] = n, true
}

// count holds one more entry against the bounds.
func (t *tree) count(words ...string) error {
	t.entries++
	for _, w := range words {
		t.words += len(w)
	}
	switch {
	case t.entries > mostEntries:
		return badImage(fmt.Sprintf("the image has more than %d files", mostEntries), tooLargeHint, nil)
	case t.words > mostWords:
		return badImage(fmt.Sprintf("the names and attributes of the image's files have more than %d bytes", mostWords),
			tooLargeHint, nil)
	}
	return nil
}

// step holds n more names that are looked up against the bound: those on the way to a file, those that the targets of
// symbolic links add, and those of a directory that a layer hides.
func (t *tree) step(n int) error {
	if t.steps += n; t.steps > mostSteps {
		return badImage(fmt.Sprintf("the names and links of the image's files take more than %d steps to follow",
			mostSteps), tooLargeHint, nil)
	}
	return nil
}

const tooLargeHint = "take a smaller image, or bind a part of its files as a directory"

// split takes a name apart. The root has no parts.
func split(what, name string) ([]string, error) {
	if name == "/" { // as some builders write the root's own entry
		return nil, nil
	}
	if strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) ||
		slices.Contains(strings.Split(name, "/"), "..") {
		return nil, broken("%s %.300q leads outside of the image", what, name)
	}
	name = path.Clean(name)
	if name == "." {
		return nil, nil
	}
	parts := strings.Split(name, "/")
	if len(parts) > mostDepth {
		return nil, broken("%s %.300q… has more than %d parts", what, name, mostDepth)
	}
	if slices.ContainsFunc(parts, func(p string) bool { return len(p) > erofs.MaxName }) {
		return nil, broken("%s %.300q has a part of more than %d bytes", what, name, erofs.MaxName)
	}
	return parts, nil
}

// view selects the files that directory goes by.
type view int

const (
	present view = iota // those of the tree
	made                // the same; directories that are missing are made, and replace other files
	below               // those that the layer has hidden, before those of the tree
)

// child returns the file of that name in a directory; nil: there is none.
func (t *tree) child(d *erofs.Node, name string, v view) *erofs.Node {
	if v == below {
		if c := t.hidden[entry{d, name}]; c != nil {
			return c
		}
	}
	return d.Children[name]
}

// directory finds the directory with that name, through symbolic links as a container runtime goes: the image's root
// is where ".." ends. It returns nil for a directory that is missing and not made.
func (t *tree) directory(parts []string, v view) (*erofs.Node, error) {
	var stack []*erofs.Node // above d
	d, links := t.root, 0
	if err := t.step(len(parts)); err != nil {
		return nil, err
	}
	for len(parts) > 0 {
		part := parts[0]
		parts = parts[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(stack) > 0 {
				d, stack = stack[len(stack)-1], stack[:len(stack)-1]
			}
			continue
		}
		c := t.child(d, part, v)
		if c != nil && c.Mode&erofs.TypeMask == erofs.TypeSymlink {
			if links++; links <= mostLinks {
				if strings.HasPrefix(c.Target, "/") {
					d, stack = t.root, nil
				}
				parts = append(strings.Split(c.Target, "/"), parts...)
				if err := t.step(len(parts)); err != nil {
					return nil, err
				}
				continue
			}
			return nil, badImage("symbolic links in the image lead in a circle", brokenHint, nil)
		}
		if c == nil || c.Mode&erofs.TypeMask != erofs.TypeDir {
			if v != made {
				return nil, nil
			}
			if len(part) > erofs.MaxName || len(stack) >= mostDepth {
				return nil, badImage("a symbolic link in the image leads too deep", brokenHint, nil)
			}
			if err := t.count(part); err != nil {
				return nil, err
			}
			c = &erofs.Node{Mode: erofs.TypeDir | 0o755, Children: map[string]*erofs.Node{}}
			t.set(entry{d, part}, c)
		}
		if v == made {
			t.here[entry{d, part}] = true
		}
		stack, d = append(stack, d), c
	}
	return d, nil
}

// place puts a file under its name, in the place of what was there. Directories keep what is in them.
func (t *tree) place(parts []string, n *erofs.Node) error {
	if len(parts) == 0 {
		if n.Mode&erofs.TypeMask != erofs.TypeDir {
			return badImage("the root of the image is not a directory", brokenHint, nil)
		}
		n.Children = t.root.Children
		*t.root = *n
		return nil
	}
	last := len(parts) - 1
	dir, err := t.directory(parts[:last], made)
	if err != nil {
		return err
	}
	at := entry{dir, parts[last]}
	if n.Mode&erofs.TypeMask != erofs.TypeDir {
		t.set(at, n)
		return nil
	}
	if old := dir.Children[at.name]; old != nil && old.Mode&erofs.TypeMask == erofs.TypeDir {
		n.Children = old.Children
		*old = *n // the entries in it name it
		t.here[at] = true
		return nil
	}
	n.Children = map[string]*erofs.Node{}
	t.set(at, n)
	return nil
}

// find returns the file that a hard link names, which itself may be a symbolic link; nil: there is none. The layer may
// have hidden it before: hiding a name does not remove the file's other names.
func (t *tree) find(parts []string) (*erofs.Node, error) {
	if len(parts) == 0 {
		return t.root, nil
	}
	last := len(parts) - 1
	for _, v := range []view{present, below} {
		dir, err := t.directory(parts[:last], v)
		if err != nil {
			return nil, err
		}
		if dir == nil {
			continue
		}
		if n := t.child(dir, parts[last], v); n != nil {
			return n, nil
		}
	}
	return nil, nil
}

// Whiteouts: https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// hide removes the name that lower layers gave a file, or all that they have in a directory.
func (t *tree) hide(parts []string) error {
	last := len(parts) - 1
	dir, err := t.directory(parts[:last], present)
	if dir == nil || err != nil {
		return err
	}
	if parts[last] == opaque {
		for name := range dir.Children {
			if _, err := t.prune(entry{dir, name}); err != nil {
				return err
			}
		}
		return nil
	}
	if name := strings.TrimPrefix(parts[last], whiteout); dir.Children[name] != nil {
		_, err = t.prune(entry{dir, name})
	}
	return err
}

// prune removes a name that is of a lower layer, and such names from the directory that it is, and reports whether the
// name stays.
func (t *tree) prune(at entry) (stays bool, err error) {
	if err := t.step(1); err != nil {
		return true, err
	}
	n := at.dir.Children[at.name]
	stays = t.here[at]
	for name := range n.Children {
		below, err := t.prune(entry{n, name})
		if err != nil {
			return true, err
		}
		stays = below || stays
	}
	if !stays {
		t.hidden[at] = n
		delete(at.dir.Children, at.name)
	}
	return stays, nil
}

// device marks what is not taken over: a device, which only stands here as what hard links may refer to.
const device = 0

// withoutDevices removes devices, and returns the regular files of each layer in the order in which they come there.
func (t *tree) withoutDevices(layers int) [][]*erofs.Node {
	files, seen := make([][]*erofs.Node, layers), map[*erofs.Node]bool{}
	var walk func(n *erofs.Node)
	walk = func(n *erofs.Node) {
		for name, c := range n.Children {
			switch c.Mode & erofs.TypeMask {
			case device:
				delete(n.Children, name)
			case erofs.TypeDir:
				walk(c)
			case erofs.TypeRegular:
				if l := c.Origin.Layer; !seen[c] {
					seen[c] = true
					files[l] = append(files[l], c)
				}
			}
		}
	}
	walk(t.root)
	for _, f := range files {
		slices.SortFunc(f, func(a, b *erofs.Node) int { return int(a.Origin.Index) - int(b.Origin.Index) })
	}
	return files
}
