package main

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/lease"
)

// TestGuide: what the guide says to configure is sound, and one thing of it fits the other.
func TestGuide(t *testing.T) {
	g, err := readGuide()
	if err != nil {
		t.Fatal(err)
	}
	file := func(path string) string {
		t.Helper()
		text, err := g.file(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	agent, err := config.ParseAgent([]byte(file("/etc/grange/agent.toml")), "agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	network := agent.Networks["grid"]
	leases, err := lease.Parse([]byte(file("/etc/grange/grid.leases")), network.Domain)
	if err != nil || len(leases) != 2 || leases[0].Name != "wn-0701.example.org" {
		t.Errorf("%+v, %v", leases, err)
	}
	if conf := file("/etc/arc.conf"); !strings.Contains(conf, "\n[queue:"+queue+"]\n") {
		t.Errorf("no queue %s: %s", queue, conf)
	}
	if _, err := g.file("/etc/none"); err == nil {
		t.Error("a file that the guide does not have")
	}
}

// TestAnswer: names have addresses of one family each, and others are not known.
func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   uint16
		status byte
		want   string
	}{
		{"www4.example.net", typeA, 0, web4},
		{"www4.example.net", typeAAAA, 0, ""},
		{"WWW6.example.net", typeAAAA, 0, web6},
		{"www6.example.net", typeA, 0, ""},
		{"other.example.net", typeA, 3, ""},
	} {
		question := []byte{7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for label := range strings.SplitSeq(c.name, ".") {
			question = append(append(question, byte(len(label))), label...)
		}
		question = binary.BigEndian.AppendUint16(append(question, 0), c.kind)
		question = append(question, 0, 1)
		reply, err := answer(question)
		if err != nil || string(reply[:2]) != "\x07\x08" || reply[3]&15 != c.status {
			t.Errorf("%+v: %x, %v", c, reply, err)
			continue
		}
		got := ""
		if count := binary.BigEndian.Uint16(reply[6:]); count == 1 {
			size := int(binary.BigEndian.Uint16(reply[len(question)+10:]))
			address, _ := netip.AddrFromSlice(reply[len(reply)-size:])
			got = address.String()
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
		for n := range len(question) {
			if _, err := answer(question[:n]); err == nil {
				t.Errorf("%d bytes of a question are answered", n)
			}
		}
	}
}
