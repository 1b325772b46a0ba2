package hostfacts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/lazyregexp"
)

// removed stands where a secret was.
const removed = "removed"

var (
	// settingSecret is a setting whose name says that its value is nobody's business: "rd.luks.key=…".
	settingSecret = lazyregexp.New(
		`(?i)([\w.-]*(?:(?:passw|passphrase|secret|token)[\w.-]*|[._-]key))=("[^"\n]*"|[^\s"']+)`)
	// attrSecret is an attribute such as passwd='…' of a graphics element.
	attrSecret = lazyregexp.New(`(?i)(passw[a-z]*|secret|key)\s*=\s*("[^"]*"|'[^']*')`)
)

// keptOptions are the options of QEMU's command line that tell of pins, memory and processors. All others go: they may
// hold passwords, keys and paths.
var keptOptions = []string{"-name", "-uuid", "-smp", "-numa", "-m", "-accel", "-enable-kvm", "-machine", "-M",
	"-cpu", "-S"}

// cleanCommand keeps the program and the options that matter, separated by zero bytes.
func cleanCommand(cmdline []byte) []byte {
	args := arguments(cmdline)
	out := args[:1:1]
	for i := 1; i < len(args); i++ {
		if !slices.Contains(keptOptions, strings.Replace(args[i], "--", "-", 1)) {
			continue
		}
		out = append(out, args[i])
		if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			out = append(out, settingSecret.ReplaceAllString(args[i+1], "${1}="+removed))
			i++
		}
	}
	return []byte(strings.Join(out, "\x00") + "\x00")
}

// droppedElements are left out of domain XML with all that is in them.
var droppedElements = []string{"secret", "auth", "commandline", "launchSecurity", "sysinfo", "description", "title",
	"cmdline", "cookies", "encryption"}

// cleanDomain takes secrets out of libvirt's XML of a VM: elements and attributes that hold passwords, arguments handed
// to QEMU as they are, and metadata of others. Of our own metadata the plan stays. What is left keeps its bytes.
func cleanDomain(text []byte) ([]byte, error) {
	if err := checkXML(text); err != nil {
		return nil, err
	}
	c := domainCleaner{text: text, decoder: xml.NewDecoder(bytes.NewReader(text))}
	for {
		err := c.next()
		if errors.Is(err, io.EOF) {
			return c.out.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("read domain XML: %w", err)
		}
	}
}

type domainCleaner struct {
	text    []byte
	decoder *xml.Decoder
	out     bytes.Buffer
	path    []xml.Name
	dropped int // depth at which an element is left out; 0 when none is
}

func (c *domainCleaner) next() error {
	from := c.decoder.InputOffset()
	token, err := c.decoder.RawToken()
	if err != nil {
		return err
	}
	raw := c.text[from:c.decoder.InputOffset()]
	switch t := token.(type) {
	case xml.StartElement:
		c.path = append(c.path, t.Name)
		if c.dropped == 0 && c.drops(t.Name) {
			c.dropped = len(c.path)
		}
		raw = attrSecret.ReplaceAll(raw, []byte("${1}='"+removed+"'"))
	case xml.EndElement:
		if len(c.path) == 0 {
			return errors.New("an element ends that never began")
		}
		defer func() { // the end is still part of the element
			if len(c.path) == c.dropped {
				c.dropped = 0
			}
			c.path = c.path[:len(c.path)-1]
		}()
	case xml.CharData:
		if n := len(c.path); n > 0 && c.path[n-1].Local == "vm" && c.path[n-1].Space == "grange" {
			raw = planOnly(t)
		}
	case xml.Comment, xml.ProcInst, xml.Directive:
		return nil
	}
	if c.dropped == 0 {
		c.out.Write(raw)
	}
	return nil
}

// drops reports whether an element is left out. Of foreign metadata only the guest's kind of system stays.
func (c *domainCleaner) drops(name xml.Name) bool {
	if slices.Contains(droppedElements, name.Local) {
		return true
	}
	inMetadata := len(c.path) > 1 && c.path[len(c.path)-2].Local == "metadata"
	return inMetadata && name.Space != "grange" && name.Space != "libosinfo"
}

// planOnly makes our metadata hold the plan alone: no user, no command, no job.
func planOnly(text []byte) []byte {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil
	}
	var record struct{ Plan json.RawMessage }
	if json.Unmarshal(data, &record) != nil {
		return nil
	}
	short, err := json.Marshal(record)
	if err != nil {
		return nil
	}
	return []byte(base64.StdEncoding.EncodeToString(short))
}
