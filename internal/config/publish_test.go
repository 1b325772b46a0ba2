package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestPublish(t *testing.T) {
	a, err := ParseAgent([]byte("[publish.hub]\naccounts = [\"root\", \"998\"]\n"+
		"[publish.far]\nhosts = [\"192.0.2.1\", \"::ffff:192.0.2.2\"]\n"), "agent.toml")
	want := []PublishTo{
		{Name: "far", Hosts: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}},
		{Name: "hub", Accounts: []string{"root", "998"}}}
	if err != nil || !reflect.DeepEqual(a.Publish, want) {
		t.Errorf("%+v, %v", a.Publish, err)
	}
}

func TestPublishRefused(t *testing.T) {
	for text, says := range map[string]string{
		"[publish.A]\naccounts = [\"a\"]": "publish.A: invalid name",
		"[publish.a]":                     "accounts or hosts",
		"[publish.a]\naccounts = [\"a\"]\nhosts = [\"192.0.2.1\"]": "accounts or hosts",
		"[publish.a]\naccounts = [\"\"]":                           "has no name",
		"[publish.a]\nhosts = [\"0.0.0.0\"]":                       "not the address of a host",
		"[publish.a]\nhosts = [\"192.0.2.0/24\"]":                  "not the address of a host",
		"[publish.a]\nhosts = [\"hub\"]":                           "not the address of a host",
		"[publish.a]\nhosts = [\"192.0.2.1\", \"2001:db8::1\"]":    "one family",
		"[publish.a]\nusers = [\"a\"]":                             "users",
	} {
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
