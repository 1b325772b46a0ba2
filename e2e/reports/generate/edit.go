package generate

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/tuning"
)

// element is one element of a VM's definition.
type element struct {
	name  string
	attrs map[string]string
	text  string
	below []*element
}

// edit makes an edit of a VM's definition, as virsh edit would.
func edit(files Tree, e tuning.Edit) error {
	text, ok := files[e.File]
	if !ok {
		return fmt.Errorf("an edit is of %q, which is not there", e.File)
	}
	root, err := parse(text)
	if err != nil {
		return err
	}
	at := root
	if root.name != "domain" {
		i := slices.IndexFunc(root.below, func(c *element) bool { return c.name == "domain" })
		if i < 0 {
			return fmt.Errorf("%s has no domain", e.File)
		}
		at = root.below[i]
	}
	segments := segmentsOf(e.Element)
	for i, s := range segments {
		name, choice, err := s.read()
		if err != nil {
			return err
		}
		if e.Remove && i == len(segments)-1 {
			at.remove(name, choice)
			break
		}
		at = at.find(name, choice)
	}
	if !e.Remove {
		maps.Copy(at.attrs, e.Set)
		if e.Text != "" {
			at.text = e.Text
		}
	}
	var out strings.Builder
	root.write(&out)
	files[e.File] = out.String()
	return nil
}

// segment is one part of an edit's path: "vcpupin[vcpu=0]".
type segment string

// segmentsOf cuts a path at the slashes that are not within brackets.
func segmentsOf(path string) (out []segment) {
	depth, start := 0, 0
	for i, c := range path {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '/' && depth == 0:
			out, start = append(out, segment(path[start:i])), i+1
		}
	}
	return append(out, segment(path[start:]))
}

// choice chooses among elements of one name: by an attribute of the element or of a child, or by number from one.
type choice struct {
	child, attr, value string
	number             int
}

func (s segment) read() (name string, c choice, err error) {
	name, inner, ok := strings.Cut(string(s), "[")
	if !ok {
		return name, c, nil
	}
	inner, ok = strings.CutSuffix(inner, "]")
	if !ok {
		return name, c, fmt.Errorf("%q is no part of a path", s)
	}
	key, value, named := strings.Cut(inner, "=")
	if !named {
		c.number, err = strconv.Atoi(inner)
		return name, c, err
	}
	c.attr, c.value = key, value
	if child, attr, ok := strings.Cut(key, "."); ok {
		c.child, c.attr = child, attr
	}
	return name, c, nil
}

// chooses reports whether an element, the nth of its name, is the one.
func (c choice) chooses(e *element, nth int) bool {
	switch {
	case c.number > 0:
		return nth == c.number
	case c.attr == "":
		return true
	case c.child == "":
		value, written := e.attrs[c.attr]
		return value == c.value || !written && c.attr == "id" && strconv.Itoa(nth-1) == c.value
	}
	return slices.ContainsFunc(e.below,
		func(b *element) bool { return b.name == c.child && b.attrs[c.attr] == c.value })
}

// find returns the element, and makes it where it is not there.
func (e *element) find(name string, c choice) *element {
	nth := 0
	for _, b := range e.below {
		if b.name != name {
			continue
		}
		if nth++; c.chooses(b, nth) {
			return b
		}
	}
	made := &element{name: name, attrs: map[string]string{}}
	if c.child == "" && c.attr != "" {
		made.attrs[c.attr] = c.value
	}
	e.below = append(e.below, made)
	return made
}

func (e *element) remove(name string, c choice) {
	nth := 0
	e.below = slices.DeleteFunc(e.below, func(b *element) bool {
		if b.name != name {
			return false
		}
		nth++
		return c.chooses(b, nth)
	})
}

func parse(text string) (*element, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	stack := []*element{{}}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		top := stack[len(stack)-1]
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{name: t.Name.Local, attrs: map[string]string{}}
			for _, a := range t.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			top.below, stack = append(top.below, e), append(stack, e)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			top.text += strings.TrimSpace(string(t))
		}
	}
	if len(stack[0].below) != 1 {
		return nil, errors.New("a definition is not one element")
	}
	return stack[0].below[0], nil
}

func (e *element) write(out *strings.Builder) {
	out.WriteString("<" + e.name)
	for _, name := range slices.Sorted(maps.Keys(e.attrs)) {
		out.WriteString(" " + name + `="`)
		_ = xml.EscapeText(out, []byte(e.attrs[name]))
		out.WriteString(`"`)
	}
	out.WriteString(">")
	_ = xml.EscapeText(out, []byte(e.text))
	for _, b := range e.below {
		b.write(out)
	}
	out.WriteString("</" + e.name + ">\n")
}
