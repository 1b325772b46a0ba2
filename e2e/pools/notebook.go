package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"

	"github.com/coder/websocket"

	"github.com/grange-project/grange/api"
)

// browser is one of a user who has signed in at a hub.
type browser struct {
	hub    *hub
	client *http.Client
	name   string
}

// signIn fills in the hub's form.
func (h *hub) signIn(ctx context.Context, name string) (*browser, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	b := &browser{hub: h, client: &http.Client{Jar: jar}, name: name}
	if _, err := b.get(ctx, "/hub/login"); err != nil {
		return nil, err
	}
	page, err := b.post(ctx, "/hub/login", map[string]string{"username": name, "password": h.Password})
	if err != nil {
		return nil, err
	}
	if !strings.Contains(page, name) {
		return nil, fmt.Errorf("%s is not signed in: %s", name, page)
	}
	return b, nil
}

// spawn has the hub start the user's server. Where users have a choice there is a form.
func (b *browser) spawn(ctx context.Context, form map[string]string) error {
	page, err := b.get(ctx, "/hub/spawn")
	if err != nil || form == nil {
		return err
	}
	for name, value := range form {
		if !strings.Contains(page, `name="`+name+`"`) || !strings.Contains(page, `value="`+value+`"`) {
			return fmt.Errorf("the form does not offer %s %s: %s", name, value, page)
		}
	}
	_, err = b.post(ctx, "/hub/spawn/"+b.name, form)
	return err
}

func (b *browser) get(ctx context.Context, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", b.hub.URL+path, nil)
	if err != nil {
		return "", err
	}
	return b.do(r)
}

// post sends a form of the hub's.
func (b *browser) post(ctx context.Context, path string, form map[string]string) (string, error) {
	values := url.Values{"_xsrf": {b.cookie("/hub/", "_xsrf")}}
	for name, value := range form {
		values.Set(name, value)
	}
	r, err := http.NewRequestWithContext(ctx, "POST", b.hub.URL+path, strings.NewReader(values.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

func (b *browser) do(r *http.Request) (string, error) {
	r.Header.Set("Origin", b.hub.URL)
	answer, err := b.client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 400 {
		err = fmt.Errorf("%s %s: %s: %s", r.Method, answer.Request.URL, answer.Status, text)
	}
	return string(text), err
}

func (b *browser) cookie(path, name string) string {
	at, err := url.Parse(b.hub.URL + path)
	if err != nil {
		return ""
	}
	for _, c := range b.client.Jar.Cookies(at) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

// cell tells where it runs.
const cell = `import os
print("boot", open("/proc/sys/kernel/random/boot_id").read().strip())
print("answer", 6 * 7, "user", os.getuid())
`

// runsCell starts a kernel, has it run a cell as a page does, and looks at where that was.
func (b *browser) runsCell(ctx context.Context) error {
	home := "/user/" + b.name + "/"
	if _, err := b.get(ctx, home+"api/status"); err == nil {
		return errors.New("the server answers who has not signed in at it")
	}
	b.get(ctx, home+"files/none") // signs in by the hub, and leads back to what is not there
	if _, err := b.get(ctx, home+"api/status"); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", b.hub.URL+home+"api/kernels", strings.NewReader(`{"name":"python3"}`))
	if err != nil {
		return err
	}
	r.Header.Set("X-XSRFToken", b.cookie(home, "_xsrf"))
	r.Header.Set("Content-Type", "application/json")
	text, err := b.do(r)
	if err != nil {
		return err
	}
	var kernel struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(text), &kernel); err != nil || kernel.ID == "" {
		return fmt.Errorf("no kernel: %s %w", text, err)
	}
	out := ""
	if err := b.hub.until(ctx, "the kernel runs a cell", func() (err error) { // the server gives up on a slow one
		out, err = b.execute(ctx, home+"api/kernels/"+kernel.ID+"/channels", cell)
		return err
	}); err != nil {
		return err
	}
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	fmt.Printf("the cell printed:\n%s", out)
	switch {
	case !strings.Contains(out, fmt.Sprintf("answer 42 user %d\n", julia)) || !strings.HasPrefix(out, "boot "):
		return fmt.Errorf("the cell printed %q", out)
	case strings.Contains(out, strings.TrimSpace(string(host))):
		return fmt.Errorf("THE CELL RAN on the host: %s", out)
	}
	return nil
}

// message is one of Jupyter's, as kernels and pages exchange them.
type message struct {
	Channel  string         `json:"channel,omitempty"`
	Header   map[string]any `json:"header"`
	Parent   map[string]any `json:"parent_header"`
	Metadata map[string]any `json:"metadata"`
	Content  map[string]any `json:"content"`
}

// execute has a kernel run code, and returns what it prints.
func (b *browser) execute(ctx context.Context, path, code string) (string, error) {
	c, _, err := websocket.Dial(ctx, strings.Replace(b.hub.URL, "http:", "ws:", 1)+path,
		&websocket.DialOptions{HTTPClient: b.client, HTTPHeader: http.Header{"Origin": {b.hub.URL}}})
	if err != nil {
		return "", err
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 20)
	id := api.NewID()
	request, err := json.Marshal(message{Channel: "shell", Parent: map[string]any{}, Metadata: map[string]any{},
		Header: map[string]any{"msg_id": id, "msg_type": "execute_request", "session": api.NewID(), "username": b.name,
			"version": "5.3", "date": "2026-01-01T00:00:00Z"},
		Content: map[string]any{"code": code, "silent": false, "store_history": true, "allow_stdin": false,
			"user_expressions": map[string]any{}, "stop_on_error": true}})
	if err != nil {
		return "", err
	}
	if err := c.Write(ctx, websocket.MessageText, request); err != nil {
		return "", err
	}
	var out bytes.Buffer
	for {
		_, text, err := c.Read(ctx)
		if err != nil {
			return out.String(), fmt.Errorf("the kernel does not answer: %w", err)
		}
		var m message
		if json.Unmarshal(text, &m) != nil || m.Parent["msg_id"] != id {
			continue
		}
		switch m.Header["msg_type"] {
		case "stream":
			fmt.Fprint(&out, m.Content["text"])
		case "error":
			return "", fmt.Errorf("the cell failed: %v", m.Content)
		case "status":
			if m.Content["execution_state"] == "idle" {
				return out.String(), nil
			}
		}
	}
}
