package apiserver

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/grange-project/grange/api/fleet"
)

// TestProblems: whatever is wrong with a request is said in a problem, with its place.
func TestProblems(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		code, says               string
	}{
		{"no such path", "GET", "/v2/vms", "", nil, 404, "no-route", "/v2/vms"},
		{"the root", "GET", "/", "", nil, 404, "no-route", ""},
		{"a path that is not clean", "GET", "/v1//vms", "", nil, 404, "no-route", ""},
		{"no such method", "DELETE", "/v1/vms", "", nil, 405, "no-route", "DELETE"},
		{"an unknown parameter", "GET", "/v1/vms?stat=running", "", nil, 422, "bad-request", "query.stat"},
		{"a parameter that is not a number", "GET", "/v1/vms?limit=many", "", nil, 422, "bad-request", "query.limit"},
		{"a limit beyond its bounds", "GET", "/v1/vms?limit=1001", "", nil, 422, "bad-request", "query.limit"},
		{"no JSON", "POST", "/v1/vms", "{", nil, 400, "bad-request", "body"},
		{"no body", "POST", "/v1/vms", "", nil, 400, "bad-request", "body"},
		{"an unknown field", "POST", "/v1/vms", `{"project":"atlas","name":"a","colour":"red"}`, nil, 422,
			"bad-request", "body.colour"},
		{"a field of another type", "POST", "/v1/vms", `{"project":"atlas","name":"a","keys":[1]}`, nil, 422,
			"bad-request", "body.keys[0]"},
		{"a missing field", "POST", "/v1/vms", `{"project":"atlas"}`, nil, 422, "bad-request", "name"},
		{"another type of body", "POST", "/v1/vms", `name=a`,
			[]string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "bad-request", ""},
		{"too large a body", "POST", "/v1/vms", strings.Repeat(" ", maxBody+1), nil, 413, "too-large", ""},
		{"too long a path", "GET", "/v1/vms?name=" + strings.Repeat("a", maxHeader), "", nil, 431,
			"header-too-large", ""},
		{"too long a header", "GET", "/v1/vms", "", []string{"X-More", strings.Repeat("a", maxHeader)}, 431,
			"header-too-large", ""},
		{"a page of another site", "POST", "/v1/vms", "{}", []string{"Sec-Fetch-Site", "cross-site"}, 403,
			"not-yours", ""},
		{"no such VM", "GET", "/v1/vms/atlas%2Fnothing", "", nil, 404, "no-vm", "nothing"},
		{"no such project", "POST", "/v1/vms", `{"project":"other","name":"a","shape":"small","image":"i"}`, nil, 404,
			"no-project", "other"},
		{"If-Match of no revision", "POST", "/v1/vms/atlas%2Fa/stop", "", []string{"If-Match", `"x"`}, 400,
			"bad-request", "If-Match"},
		{"If-None-Match of a revision", "PUT", "/v1/groups/atlas/a", `{"affinity":"affinity"}`,
			[]string{"If-None-Match", `"7"`}, 400, "bad-request", "If-None-Match"},
		{"no upgrade", "GET", "/v1/vms/atlas%2Fa/stream", "", nil, 426, "not-a-stream", ""},
		{"a host's route", "GET", fleet.RouteWanted, "", nil, 401, "", "certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, body := l.ask(c.method, c.path, c.body, c.headers...)
			var p problem
			if err := json.Unmarshal([]byte(body), &p); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if answer.StatusCode != c.status || p.Status != c.status || c.code != "" && p.Type != "grange:"+c.code ||
				!strings.Contains(p.Detail+answer.Header.Get("If-Match"), c.says) ||
				answer.Header.Get("Content-Type") != "application/problem+json" || p.Hint == "" ||
				answer.Header.Get(fleet.CapabilityHeader) == "" {
				t.Errorf("%d %v %s", answer.StatusCode, answer.Header, body)
			}
		})
	}
}

func TestHeadAndOptions(t *testing.T) {
	l := newLab(t)
	if answer, body := l.ask("HEAD", "/v1/cells/east", ""); answer.StatusCode != 200 || body != "" ||
		answer.Header.Get("ETag") == "" {
		t.Errorf("HEAD: %d %v %q", answer.StatusCode, answer.Header, body)
	}
	answer, body := l.ask("OPTIONS", "/v1/vms", "")
	if allow := answer.Header.Get("Allow"); answer.StatusCode != 204 || body != "" ||
		!strings.Contains(allow, "POST") || !strings.Contains(allow, "GET") {
		t.Errorf("OPTIONS: %d %v %q", answer.StatusCode, answer.Header, body)
	}
	if answer, _ := l.ask("OPTIONS", "/nothing", ""); answer.StatusCode != http.StatusNotFound {
		t.Errorf("OPTIONS of nothing: %d", answer.StatusCode)
	}
}

// TestEveryRouteAsksWhoCalls: but for those that are for all.
func TestEveryRouteAsksWhoCalls(t *testing.T) {
	l := newLab(t)
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	open := map[string]bool{"GET /v1/version": true, "GET /v1/openapi.json": true, "GET /v1/auth/issuers": true,
		"POST /v1/auth/login": true, "POST " + fleet.RouteEnrol: true}
	for pattern, whose := range l.api.whose {
		if open[pattern] != (whose == forAll) {
			t.Errorf("%s is for %q", pattern, whose)
		}
		if open[pattern] {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, l.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := secure.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s answers %d to somebody", pattern, answer.StatusCode)
		}
	}
}
