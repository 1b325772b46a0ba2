package hostfacts

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

const (
	maxDomains  = 4096
	maxElements = 100_000 // of one domain's XML
)

// domainDirs are where libvirt keeps the XML of VMs: those that it has started, then those that are defined.
var domainDirs = []string{"run/libvirt/qemu", "etc/libvirt/qemu"}

// domains reads every VM that libvirt knows, in order of names. What runs goes before what is defined under the same
// UUID. XML that cannot be read is noted and left out: libvirt leaves it out, too.
func (r *reader) domains() []farm.Domain {
	var out []farm.Domain
	seen := map[string]bool{}
	for _, dir := range domainDirs {
		names, err := r.Dir(dir)
		if err != nil {
			r.miss(dir, err)
		}
		for _, name := range names {
			path := dir + "/" + name
			if !strings.HasSuffix(name, ".xml") {
				continue
			}
			text, err := r.First(path, hosttree.MaxLarge)
			var d farm.Domain
			if err == nil {
				d, err = parseDomain(text)
			}
			if err != nil || len(out) == maxDomains {
				r.miss(path, cmp.Or(err, fmt.Errorf("more than %d VMs", maxDomains)))
				continue
			}
			if d.UUID != "" && seen[d.UUID] {
				continue
			}
			seen[d.UUID] = true
			d.Path, d.Autostart = path, r.autostarts(name)
			for i := range d.Disks {
				r.image(&d.Disks[i])
			}
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b farm.Domain) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// autostarts reports whether libvirt starts a VM when the host boots: it keeps a link to the VM's XML for that.
func (r *reader) autostarts(name string) bool {
	const dir = "etc/libvirt/qemu/autostart/"
	if _, err := r.Link(dir + name); err == nil {
		return true
	}
	return r.Exists(dir + name) // a recording has the file that the link stands for
}

// parseDomain reads <domain>, or the <domstatus> around it that libvirt keeps of a running one.
func parseDomain(text []byte) (farm.Domain, error) {
	if err := checkXML(text); err != nil {
		return farm.Domain{}, err
	}
	var status struct {
		XMLName xml.Name
		State   string     `xml:"state,attr"`
		Advice  adviceXML  `xml:"numad"`
		Domain  *domainXML `xml:"domain"`
	}
	if err := xml.Unmarshal(text, &status); err != nil {
		return farm.Domain{}, fmt.Errorf("read domain XML: %w", err)
	}
	switch status.XMLName.Local {
	case "domstatus":
		if status.Domain == nil {
			return farm.Domain{}, errors.New("a status without a domain")
		}
		status.Domain.advice = status.Advice
		d, err := status.Domain.domain()
		d.Running = status.State != "shutoff" && status.State != "crashed"
		return d, err
	case "domain":
		var x domainXML
		if err := xml.Unmarshal(text, &x); err != nil {
			return farm.Domain{}, fmt.Errorf("read domain XML: %w", err)
		}
		return x.domain()
	}
	return farm.Domain{}, fmt.Errorf("<%s> is not a domain", status.XMLName.Local)
}

// checkXML refuses what is too large or too deep to be a domain: the decoder builds what it is told to.
func checkXML(text []byte) error {
	if len(text) == hosttree.MaxLarge {
		return fmt.Errorf("longer than %d bytes", hosttree.MaxLarge)
	}
	dec := xml.NewDecoder(bytes.NewReader(text))
	for elements, depth := 0, 0; ; {
		token, err := dec.RawToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read domain XML: %w", err)
		}
		switch token.(type) {
		case xml.StartElement:
			elements, depth = elements+1, depth+1
		case xml.EndElement:
			depth--
		}
		if elements > maxElements || depth > 100 {
			return errors.New("XML with too many elements for a domain")
		}
	}
}
