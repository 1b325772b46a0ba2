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
)

// tree is the file system that layers add up to.
type tree struct {
	root           *erofs.Node
	layer          int32 // that is being added
	entries, words int
}

func newTree() *tree {
	return &tree{root: &erofs.Node{Mode: erofs.TypeDir | 0o755, Children: map[string]*erofs.Node{}}}
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

// directory finds the directory with that name, through symbolic links as a container runtime goes: the image's root
// is where ".." ends. Without makes, nil is returned for what is not there; with it, directories are made, and take the
// place of other files.
func (t *tree) directory(parts []string, makes bool) (*erofs.Node, error) {
	var stack []*erofs.Node // above d
	d, links := t.root, 0
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
		c := d.Children[part]
		if c != nil && c.Mode&erofs.TypeMask == erofs.TypeSymlink {
			if links++; links <= mostLinks {
				if strings.HasPrefix(c.Target, "/") {
					d, stack = t.root, nil
				}
				parts = append(strings.Split(c.Target, "/"), parts...)
				continue
			}
			return nil, badImage("symbolic links in the image lead in a circle", brokenHint, nil)
		}
		if c == nil || c.Mode&erofs.TypeMask != erofs.TypeDir {
			if !makes {
				return nil, nil
			}
			if len(part) > erofs.MaxName || len(stack) >= mostDepth {
				return nil, badImage("a symbolic link in the image leads too deep", brokenHint, nil)
			}
			if err := t.count(part); err != nil {
				return nil, err
			}
			c = &erofs.Node{Mode: erofs.TypeDir | 0o755, Children: map[string]*erofs.Node{}}
			d.Children[part] = c
		}
		if makes {
			c.Origin.Layer = t.layer
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
		n.Children, t.root = t.root.Children, n
		return nil
	}
	last := len(parts) - 1
	dir, err := t.directory(parts[:last], true)
	if err != nil {
		return err
	}
	if old := dir.Children[parts[last]]; old != nil && n.Mode&erofs.TypeMask == erofs.TypeDir &&
		old.Mode&erofs.TypeMask == erofs.TypeDir {
		n.Children = old.Children
	}
	if n.Mode&erofs.TypeMask == erofs.TypeDir && n.Children == nil {
		n.Children = map[string]*erofs.Node{}
	}
	dir.Children[parts[last]] = n
	return nil
}

// find returns the file with that name, which itself may be a link; nil: there is none.
func (t *tree) find(parts []string) (*erofs.Node, error) {
	if len(parts) == 0 {
		return t.root, nil
	}
	dir, err := t.directory(parts[:len(parts)-1], false)
	if dir == nil || err != nil {
		return nil, err
	}
	return dir.Children[parts[len(parts)-1]], nil
}

// Whiteouts: https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// hide takes away what lower layers have under a name, or all that they have in a directory.
func (t *tree) hide(parts []string) error {
	last := len(parts) - 1
	dir, err := t.directory(parts[:last], false)
	if dir == nil || err != nil {
		return err
	}
	if parts[last] == opaque {
		for name, c := range dir.Children {
			if !t.prune(c) {
				delete(dir.Children, name)
			}
		}
		return nil
	}
	name := strings.TrimPrefix(parts[last], whiteout)
	if c := dir.Children[name]; c != nil && !t.prune(c) {
		delete(dir.Children, name)
	}
	return nil
}

// prune removes what is of lower layers from a directory, and reports whether the file itself stays.
func (t *tree) prune(n *erofs.Node) bool {
	stays := n.Origin.Layer == t.layer
	for name, c := range n.Children {
		if t.prune(c) {
			stays = true
		} else {
			delete(n.Children, name)
		}
	}
	return stays
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
