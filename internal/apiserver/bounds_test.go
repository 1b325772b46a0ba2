package apiserver

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	diffs "github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/accounts"
)

// How a route that may change something is kept from filling the store. Each change is one of its user's, who makes
// 5,000 at once and then one a second, and leaves an entry in the audit log; what else it writes is said here.
const (
	readsOnly   = "it changes nothing"
	sameRows    = "it changes or deletes rows that are there"
	quotas      = "rows within the quota of a project; each ten VMs are one more change"
	administers = "rows that an administrator of the fleet declares"
	counted     = "rows of a bounded number: see boundOfTable and boundOfKind of package store"
	byHost      = "a host alone calls it; its rows are bounded by host"
	byToken     = "a host alone calls it, with a token that enrols a bounded number of hosts"
)

// boundOfRoute says it for each route, by method and path.
var boundOfRoute = map[string]string{
	"PUT /v1/security-groups/{project}/{name}":    counted,
	"DELETE /v1/security-groups/{project}/{name}": sameRows,
	"PUT /v1/users/{user}":                        administers,
	"DELETE /v1/users/{user}":                     sameRows,
	"PUT /v1/grants":                              counted,
	"DELETE /v1/grants":                           sameRows,
	"POST /v1/tokens":                             counted,
	"DELETE /v1/tokens/{token}":                   sameRows,
	"POST /v1/file-systems/{file_system}/drain":   sameRows,
	"POST /v1/file-systems/{file_system}/resume":  sameRows,
	"POST /v1/why":                                readsOnly,
	"POST /v1/images":                             administers,
	"POST /v1/images/{image}/mark":                sameRows,
	"POST /v1/images/{image}/tag":                 administers,
	"DELETE /v1/images/{image}":                   sameRows,
	"PUT /v1/image-uploads/{sha256}":              administers,
	"POST /v1/images:prestage":                    counted,
	"POST /v1/images:invalidate":                  counted,
	"DELETE /v1/sessions/{session}":               sameRows,
	"POST /v1/usage/months/{month}/close":         sameRows,
	"POST /v1/usage/withdraw":                     sameRows,
	"POST /v1/vms":                                quotas,
	"PATCH /v1/vms/{vm}":                          sameRows,
	"POST /v1/vms/{vm}/resize":                    sameRows,
	"POST /v1/vms/{vm}/rebuild":                   sameRows,
	"POST /v1/vms/{vm}/move":                      counted,
	"DELETE /v1/vms/{vm}":                         sameRows,
	"POST /v1/vms/{vm}/start":                     sameRows,
	"POST /v1/vms/{vm}/stop":                      sameRows,
	"POST /v1/vms/{vm}/restart":                   sameRows,
	"DELETE /v1/vms/{vm}/move":                    sameRows,
	"POST /v1/ca/rotate":                          sameRows,
	"POST /v1/ca/retire":                          sameRows,
	"PATCH /v1/hosts/{host}":                      sameRows,
	"POST /v1/hosts:label":                        sameRows,
	"POST /v1/hosts:open":                         sameRows,
	"POST /v1/hosts:close":                        sameRows,
	"POST /v1/hosts:drain":                        sameRows,
	"POST /v1/hosts/{host}/fence":                 sameRows,
	"POST /v1/hosts/{host}/evict":                 sameRows,
	"DELETE /v1/hosts/{host}":                     sameRows,
	"POST /v1/join-tokens":                        counted,
	"DELETE /v1/join-tokens/{token}":              sameRows,
	"POST /v1/cells/{cell}/open":                  sameRows,
	"POST /v1/cells/{cell}/close":                 sameRows,
	"POST /v1/cells/{cell}/drain":                 sameRows,
	"PUT /v1/groups/{project}/{name}":             counted,
	"DELETE /v1/groups/{project}/{name}":          sameRows,
	"POST /v1/apply":                              administers,
	"POST /v1/auth/login":                         counted,
	"POST /v1/auth/logout":                        sameRows,
	"POST /v1/auth/explain-claims":                readsOnly,
	"POST /v1/incidents":                          counted,
	"POST /v1/incidents/{incident}/notes":         counted,
	"POST /v1/incidents/{incident}/links":         counted,
	"POST /v1/incidents/{incident}/close":         counted,
	"POST /v1/incidents/{incident}/reopen":        counted,
	"POST /v1/host/enrol":                         byToken,
}

// TestRoutesHaveBounds: each route that may change something names what keeps its callers from filling the store.
func TestRoutesHaveBounds(t *testing.T) {
	l := newLab(t)
	var changing []string
	for pattern, whose := range l.api.whose {
		if method, _, _ := strings.Cut(pattern, " "); safe(method) {
			continue
		}
		if changing = append(changing, pattern); whose == forHosts {
			boundOfRoute[pattern] = byHost
		}
	}
	slices.Sort(changing)
	if diff := diffs.Diff(slices.Sorted(maps.Keys(boundOfRoute)), changing); diff != "" {
		t.Errorf("routes with a bound, and those that there are: %s", diff)
	}
}

// TestChangesOfRoutesAreBounded: whatever a user changes, it is refused behind too many changes. Requests have what
// their route takes at least.
func TestChangesOfRoutesAreBounded(t *testing.T) {
	l := newLab(t)
	_, token, err := l.server.Accounts.CreateToken(t.Context(), farm.Identity{User: "ann", Means: "certificate"},
		accounts.TokenOrder{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) (status int, text string) {
		answer, text := l.ask(method, path, body, "Authorization", "Bearer "+token)
		return answer.StatusCode, text
	}
	exhaust := func() {
		for {
			_, err := l.server.VMs.Create(t.Context(), farm.Identity{User: "ann", Means: "token"},
				server.CreateVM{Project: "none", Name: "a", Count: 100})
			if farm.IsCode(err, farm.CodeTooManyChanges) {
				return
			}
		}
	}
	bodies := map[string]string{
		"PUT /v1/security-groups/{project}/{name}": `{"rules": []}`,
		"PUT /v1/grants":               `{"user": "ann", "role": "reader"}`,
		"POST /v1/images/{image}/mark": `{"state": "deprecated"}`,
		"POST /v1/images/{image}/tag":  `{"name": "a"}`,
		"POST /v1/images:prestage":     `{"image": "a"}`,
		"POST /v1/images:invalidate":   `{"image": "a"}`,
		"POST /v1/usage/withdraw": `{"host": "a", "from": "2026-01-01T00:00:00Z", ` +
			`"to": "2026-01-02T00:00:00Z"}`,
		"POST /v1/vms":                        `{"project": "atlas", "name": "a", "image": "a", "shape": "small"}`,
		"POST /v1/vms/{vm}/resize":            `{"shape": "small"}`,
		"POST /v1/vms/{vm}/rebuild":           `{"image": "a"}`,
		"POST /v1/join-tokens":                `{"cell": "east"}`,
		"PUT /v1/groups/{project}/{name}":     `{"affinity": "affinity"}`,
		"POST /v1/incidents":                  `{"title": "a", "concerns": {"vms": ["atlas/a"]}}`,
		"POST /v1/incidents/{incident}/notes": `{"text": "a"}`,
		"POST /v1/incidents/{incident}/links": `{"concerns": {"vms": ["atlas/a"]}}`,
		"POST /v1/apply":                      `{"farm": {}}`,
		"POST /v1/hosts/{host}/evict":         `{"vms": ["a"]}`,
	}
	queries := map[string]string{"POST /v1/hosts:label": "?host=h", "POST /v1/hosts:open": "?host=h",
		"POST /v1/hosts:close": "?host=h", "POST /v1/hosts:drain": "?host=h",
		"DELETE /v1/grants": "?user=ann&role=reader"}
	// an image is added by an administrator, who is asked before anything is written; a sign-in needs an issuer, and
	// ends as one session
	others := []string{"POST /v1/images", "PUT /v1/image-uploads/{sha256}", "POST /v1/auth/login",
		"POST /v1/auth/logout"}
	for _, pattern := range slices.Sorted(maps.Keys(boundOfRoute)) {
		switch boundOfRoute[pattern] {
		case readsOnly, byHost, byToken:
			continue
		}
		if slices.Contains(others, pattern) {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{month}", "2026-01", "{incident}", "1").Replace(path)
		for i := strings.Index(path, "{"); i >= 0; i = strings.Index(path, "{") {
			path = path[:i] + "atlas" + path[i+strings.Index(path[i:], "}")+1:]
		}
		var status int
		var text string
		for range 3 { // there is room for one more each second
			exhaust()
			status, text = ask(method, path+queries[pattern], cmp.Or(bodies[pattern], "{}"))
			if strings.Contains(text, string(farm.CodeTooManyChanges)) {
				break
			}
		}
		if !strings.Contains(text, string(farm.CodeTooManyChanges)) {
			t.Errorf("%s: %d %s", pattern, status, text)
		}
	}
}
