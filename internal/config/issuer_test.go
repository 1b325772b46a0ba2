package config

import (
	"strings"
	"testing"
	"time"
)

func TestIssuers(t *testing.T) {
	const good = "[issuers.org]\nurl = \"https://issuer.example.org/\"\nclient_id = \"grange\"\n"
	s, err := ParseServer([]byte("session_idle = \"1h\"\nsession_limit = \"12h\"\n"+good+
		"scopes = [\"groups\"]\naudiences = [\"grange-api\"]\nname_claim = \"name\"\ncreate_users = true"), "x")
	if err != nil {
		t.Fatal(err)
	}
	if i := s.Issuers["org"]; i.URL != "https://issuer.example.org/" || !i.CreateUsers ||
		i.Audiences[0] != "grange-api" || s.SessionIdle != time.Hour || s.SessionLimit != 12*time.Hour {
		t.Errorf("%+v", s)
	}
	for text, says := range map[string]string{
		strings.Replace(good, "https:", "http:", 1):                                     "not an https URL",
		strings.Replace(good, "\"grange\"", "\"\"", 1):                                  "client_id",
		strings.Replace(good, "[issuers.org]", "[issuers.\"a b\"]", 1):                  "no issuer can be called",
		good + "create_users = true":                                                    "name_claim",
		good + "audiences = [\"grange\"]":                                               "audience of identity tokens",
		good + "device_client_id = \"cli\"\naudiences = [\"cli\"]":                      "audience of identity tokens",
		good + "client_secret_file = \"secret\"":                                        "not an absolute path",
		good + "ca = \"ca.pem\"":                                                        "not an absolute path",
		good + "secret = \"x\"":                                                         "secret",
		"listen = \"\"\n" + good:                                                        "browsers come by it",
		good + "name_claim = \"name\"\ncreate_users = true\n[usage]\nsame_names = true": "choose one of them",
		"session_idle = \"25h\"":                                                        "session_idle",
		"session_idle = \"1s\"":                                                         "session_idle",
		"session_limit = \"900h\"":                                                      "session_limit",
		"session_limit = \"soon\"":                                                      "session_limit",
	} {
		if _, err := ParseServer([]byte(text), "x"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, not %q", text, err, says)
		}
	}
}
