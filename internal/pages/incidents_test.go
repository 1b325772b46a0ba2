package pages

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestIncidents: an incident by forms alone, from a host's page to its end.
func TestIncidents(t *testing.T) {
	l := newLab(t)
	l.shows("otto", "/incidents", "No incident is open")
	l.shows("otto", "/hosts/h1", "None is open.", `href="/incidents/new?host=h1"`)
	l.shows("otto", "/incidents/new?host=h1", `name="host" value="h1"`)
	form := url.Values{"title": {"<b>swap</b>"}, "severity": {"critical"}, "host": {"h1"}, "finding": {"host-swap-in-use"},
		"text": {"since\r\nnoon"}, "began": {"2020-01-31T18:00"}, "once": {"k"}}
	for range 2 { // a double click
		status, body, header := l.as("otto", "/incidents/new", form)
		if status != http.StatusSeeOther || header.Get("Location") != "/incidents/1" {
			t.Fatalf("opened: %d to %q\n%s", status, header.Get("Location"), body)
		}
	}
	l.shows("otto", "/incidents", "&lt;b&gt;swap&lt;/b&gt;", "open, critical", `href="/hosts/h1"`, "otto")
	l.shows("otto", "/hosts/h1", `href="/incidents/1"`, "open, critical")
	l.shows("otto", "/incidents/1", "since\nnoon", "<strong>otto</strong> opened it; about host h1, finding host-swap-in-use; severity critical")
	post := func(verb string, form url.Values, want int, has string) {
		t.Helper()
		status, body, _ := l.as("otto", "/incidents/1/"+verb, form)
		if status != want || !strings.Contains(body, has) {
			t.Errorf("%s: %d\n%s", verb, status, body)
		}
	}
	const done = http.StatusSeeOther
	post("note", url.Values{"text": {"<i>more memory</i>"}, "severity": {"minor"}}, done, "")
	post("note", url.Values{"text": {" "}}, http.StatusBadRequest, "an empty note")
	post("link", url.Values{"cell": {"east, east"}, "text": {"all of it"}}, done, "")
	post("link", url.Values{"host": {"h9"}, "text": {"kept <here>"}}, http.StatusForbidden, `value="kept &lt;here&gt;"`)
	post("link", url.Values{"incident": {"one"}}, http.StatusBadRequest, "names no incident")
	post("close", url.Values{"ended": {"2019-01-01T00:00"}}, http.StatusBadRequest, "is to have ended at")
	post("close", url.Values{"text": {"reboot"}, "ended": {"2020-01-31 19:00"}}, done, "")
	post("close", url.Values{}, http.StatusConflict, "incident 1 is closed")
	l.shows("otto", "/incidents/1", "&lt;i&gt;more memory&lt;/i&gt;", "closed, minor", "closed it; over at 2020-01-31 19:00",
		`/incidents/1/reopen"`)
	l.shows("otto", "/hosts/h1", "None is open.")
	post("reopen", url.Values{}, done, "")
	post("burn", url.Values{}, http.StatusNotFound, "nothing is called")
	l.shows("otto", "/incidents?host=h1&since=day", "/incidents/1")
	l.shows("otto", "/incidents?host=h2", "chosen by this filter")
	status, body, _ := l.as("otto", "/incidents/1/now", nil)
	_, after, _ := strings.Cut(body, "/now?seen=")
	seen, _, _ := strings.Cut(after, `"`)
	if status != http.StatusOK || seen == "" {
		t.Fatalf("%d\n%s", status, body)
	}
	if status, _, _ := l.as("otto", "/incidents/1/now?seen="+seen, nil); status != http.StatusNoContent {
		t.Errorf("without news: %d", status)
	}
	l.shows("otto", "/log?who=otto", "incident.close", "incident 1")
}

// TestWhoSeesIncidents: whom it does not concern sees nothing of it; whom it concerns sees what they may.
func TestWhoSeesIncidents(t *testing.T) {
	l := newLab(t)
	l.as("ann", "/vms/new", url.Values{"name": {"web"}, "project": {"atlas"}, "image": {"micro"}, "shape": {"small"}})
	l.shows("ann", "/vms/atlas/web", "None is open.", `href="/incidents/new?vm=atlas%2Fweb"`)
	if status, _, _ := l.as("ann", "/incidents/new", url.Values{"title": {"it hangs"}, "vm": {"atlas/web"}}); status !=
		http.StatusSeeOther {
		t.Fatal(status)
	}
	l.shows("ann", "/vms/atlas/web", `href="/incidents/1"`)
	if status, body, _ := l.as("ann", "/incidents/new", url.Values{"title": {"mine"}, "host": {"h1"}}); status !=
		http.StatusForbidden || !strings.Contains(body, `value="mine"`) {
		t.Errorf("about a host: %d\n%s", status, body)
	}
	for path, form := range map[string]url.Values{"/incidents/1": nil, "/incidents/1/note": {"text": {"a"}},
		"/incidents/1/close": {}} {
		if status, body, _ := l.as("eve", path, form); status != http.StatusForbidden || strings.Contains(body, "it hangs") {
			t.Errorf("%s of eve: %d\n%s", path, status, body)
		}
	}
	if _, body, _ := l.as("eve", "/incidents", nil); strings.Contains(body, "it hangs") {
		t.Errorf("eve's list:\n%s", body)
	}
	for path, want := range map[string]int{"/incidents/9": http.StatusNotFound, "/incidents/x": http.StatusNotFound} {
		if status, _, _ := l.as("ann", path, nil); status != want {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// TestForeignFormsOfIncidents: a form of another site's page does nothing.
func TestForeignFormsOfIncidents(t *testing.T) {
	l := newLab(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url+"/incidents/new",
		strings.NewReader("title=a&host=h1"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer "+l.tokens["otto"])
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	answer, err := l.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("%d", answer.StatusCode)
	}
	l.shows("otto", "/incidents?state=all", "There are no incidents")
}
