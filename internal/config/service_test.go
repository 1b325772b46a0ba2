package config

import (
	"slices"
	"strings"
	"testing"
)

func TestServices(t *testing.T) {
	a, err := ParseAgent([]byte(`
[services.squid]
connect = "[::1]:3128"
port = 3128
groups = ["atlas"]
variables = { http_proxy = "http://{address}:{port}", A = "b" }
[services.db]
connect = "/run/db.sock"
port = 5432
`), "agent.toml")
	if err != nil || len(a.Services) != 2 {
		t.Fatalf("%v, %v", a.Services, err)
	}
	db, squid := a.Services[0], a.Services[1]
	if db.Name != "db" || db.Network != "unix" || db.Address != "/run/db.sock" || db.Port != 5432 {
		t.Errorf("%+v", db)
	}
	want := []string{"A=b", "http_proxy=http://127.0.0.1:3128"}
	if squid.Network != "tcp" || squid.Address != "[::1]:3128" || !slices.Equal(squid.Variables, want) ||
		!slices.Equal(squid.Whom.Groups, []string{"atlas"}) {
		t.Errorf("%+v", squid)
	}
}

func TestServicesRefused(t *testing.T) {
	for text, says := range map[string]string{
		"[services.A]\nconnect = \"/s\"\nport = 1":                                           "services.A: invalid name",
		"[services.a]\nconnect = \"/s\"":                                                     "port: 0",
		"[services.a]\nconnect = \"/s\"\nport = 65536":                                       "port: 65536",
		"[services.a]\nport = 1":                                                             "connect: ",
		"[services.a]\nconnect = \"localhost:1\"\nport = 1":                                  "is not ADDRESS:PORT",
		"[services.a]\nconnect = \"::1:0\"\nport = 1":                                        "is not ADDRESS:PORT",
		"[services.a]\nconnect = \"/s\"\nport = 1\nusers = [\"[\"]":                          "invalid pattern",
		"[services.a]\nconnect = \"/s\"\nport = 1\nvariables = {\"=\"=1}":                    "",
		"[services.a]\nconnect = \"/s\"\nport = 1\nvariables.\"a b\" = \"x\"":                "variables: invalid",
		"[services.a]\nconnect = \"/s\"\nport = 1\n[services.b]\nconnect = \"/s\"\nport = 1": "port 1 is that of service a",
		"[services.a]\nconnect = \"/s\"\nport = 1\nvariables.X = \"\"\n[services.b]\nconnect = \"/s\"\nport = 2\n" +
			"variables.X = \"\"": "X is set by service a",
		"[services.a]\nconnect = \"/s\"\nport = 1\nunknown = 1": "unknown",
	} {
		if _, err := ParseAgent([]byte(text), "agent.toml"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
