package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Client talks to one agent over its unix socket.
type Client struct {
	http *http.Client
}

// ErrNoAgent is returned, wrapped, when nobody answers on the socket.
var ErrNoAgent = errors.New("no agent answers")

// NewClient makes a client for the agent at socket. Nothing is connected yet. See DialSocket for how it connects.
func NewClient(socket string) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := DialSocket(ctx, socket)
			if err != nil {
				return nil, fmt.Errorf("%w on %s: %w", ErrNoAgent, socket, err)
			}
			return conn, nil
		},
		DisableKeepAlives: true, // the agent may be another one next time
	}}}
}

// do sends one request. A Problem comes back as an error.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, reader)
	if err != nil {
		return nil, err
	}
	return c.send(request)
}

func (c *Client) send(request *http.Request) (*http.Response, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	p := &Problem{Status: response.StatusCode}
	if err := json.NewDecoder(response.Body).Decode(p); err != nil || p.Detail == "" {
		return nil, fmt.Errorf("the agent answered %s to %s %s", response.Status, request.Method, request.URL.Path)
	}
	return nil, p
}

func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	response, err := c.do(ctx, method, path, body)
	if err != nil {
		return out, err
	}
	defer response.Body.Close()
	return out, json.NewDecoder(response.Body).Decode(&out)
}

// lines calls each with every line of an answer; it returns nil when the answer has ended as it should.
func lines[T any](response *http.Response, each func(T) error) error {
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var v T
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(v); err != nil {
			return err
		}
	}
}

// Job asks for a job, or joins the one with the same ID, and calls each with its events. The VM is the caller's as long
// as Job runs. It returns nil when the agent has nothing more to say; an error that is no Problem means that the
// connection broke.
func (c *Client) Job(ctx context.Context, r JobRequest, each func(JobEvent) error) error {
	response, err := c.do(ctx, "POST", "/v1/jobs", r)
	if err != nil {
		return err
	}
	return lines(response, each)
}

// Done gives a job's VM back and returns when it is gone.
func (c *Client) Done(ctx context.Context, job string) (JobEnd, error) {
	return call[JobEnd](ctx, c, "POST", "/v1/jobs/"+url.PathEscape(job)+"/done", nil)
}

// HeartbeatInterval is how often a caller that promised heartbeats says that it is not stopped.
const HeartbeatInterval = time.Second

// Heartbeats reports to the agent every second that this process is not stopped, as a job's request has promised;
// without that its VM is paused. It returns nil when ctx ends, and an error when the connection broke: then call it
// again.
func (c *Client) Heartbeats(ctx context.Context, job string) error {
	request, err := http.NewRequestWithContext(ctx, "POST", "http://agent/v1/jobs/"+url.PathEscape(job)+"/beats",
		&heartbeats{ctx: ctx})
	if err != nil {
		return err
	}
	response, err := c.send(request)
	if err == nil {
		response.Body.Close()
		err = errors.New("the agent takes no more heartbeats")
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// heartbeats is a body of one byte a second, the first at once. A process that was stopped goes on where it was: late,
// and never with what it missed.
type heartbeats struct {
	ctx  context.Context
	last time.Time
}

func (b *heartbeats) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !b.last.IsZero() {
		timer := time.NewTimer(time.Until(b.last.Add(HeartbeatInterval)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-b.ctx.Done():
			return 0, io.EOF
		}
	}
	b.last = time.Now()
	p[0] = '.'
	return 1, nil
}

// Grant returns what the agent would give a job of this caller.
func (c *Client) Grant(ctx context.Context) (Grant, error) {
	return call[Grant](ctx, c, "GET", "/v1/grant", nil)
}

// Claim sets a part of the host aside for a job beside VMs. Claiming again with the same key replaces the claim.
func (c *Client) Claim(ctx context.Context, claim Claim) (Claim, error) {
	return call[Claim](ctx, c, "POST", "/v1/claims", claim)
}

// Release ends a claim. Releasing what is not claimed is no error.
func (c *Client) Release(ctx context.Context, key string) error {
	_, err := call[Claim](ctx, c, "DELETE", "/v1/claims/"+key, nil)
	return err
}

// Drain keeps new VMs off the host until EndDrain, also when the agent or the host starts anew. It returns who is still
// there: draining again asks for the rest.
func (c *Client) Drain(ctx context.Context, reason string) (Drain, error) {
	return call[Drain](ctx, c, "POST", "/v1/drain", Drain{Reason: reason})
}

// EndDrain lets VMs start again. Ending what is not is no error.
func (c *Client) EndDrain(ctx context.Context) error {
	_, err := call[Drain](ctx, c, "DELETE", "/v1/drain", nil)
	return err
}

// Claims lists the claims of jobs on the host.
func (c *Client) Claims(ctx context.Context) ([]Claim, error) {
	return call[[]Claim](ctx, c, "GET", "/v1/claims", nil)
}

// VMs lists the VMs of the host.
func (c *Client) VMs(ctx context.Context) ([]VM, error) {
	return call[[]VM](ctx, c, "GET", "/v1/vms", nil)
}

// VM looks one VM up, by name or by the start of its or its job's ID.
func (c *Client) VM(ctx context.Context, ref string) (VM, error) {
	return call[VM](ctx, c, "GET", "/v1/vms/"+url.PathEscape(ref), nil)
}

// Stop ends a VM and returns when it is gone.
func (c *Client) Stop(ctx context.Context, ref string) (VM, error) {
	return call[VM](ctx, c, "DELETE", "/v1/vms/"+url.PathEscape(ref), nil)
}

// Suspend stops a VM's processors.
func (c *Client) Suspend(ctx context.Context, ref string) (VM, error) {
	return call[VM](ctx, c, "POST", "/v1/vms/"+url.PathEscape(ref)+"/suspend", nil)
}

// Resume lets a suspended VM go on.
func (c *Client) Resume(ctx context.Context, ref string) (VM, error) {
	return call[VM](ctx, c, "POST", "/v1/vms/"+url.PathEscape(ref)+"/resume", nil)
}

// Console copies the end of a VM's serial console to w; with follow, what comes after it too.
func (c *Client) Console(ctx context.Context, ref string, follow bool, w io.Writer) error {
	response, err := c.do(ctx, "GET", fmt.Sprintf("/v1/vms/%s/console?follow=%t", url.PathEscape(ref), follow), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(w, response.Body)
	return err
}

// Images lists the images of the host.
func (c *Client) Images(ctx context.Context) ([]Image, error) {
	return call[[]Image](ctx, c, "GET", "/v1/images", nil)
}

// Image returns one image, by name or digest.
func (c *Client) Image(ctx context.Context, ref string) (ImageDetails, error) {
	return call[ImageDetails](ctx, c, "GET", "/v1/images/"+url.PathEscape(ref), nil)
}

// MarkImage changes the state of an image, or pins it. The answer says which VMs use it.
func (c *Client) MarkImage(ctx context.Context, ref string, m ImageMark) (ImageDetails, error) {
	return call[ImageDetails](ctx, c, "POST", "/v1/images/"+url.PathEscape(ref)+"/mark", m)
}

// TagImage gives an image one more name, or the name of another.
func (c *Client) TagImage(ctx context.Context, ref, name string) (ImageDetails, error) {
	return call[ImageDetails](ctx, c, "POST", "/v1/images/"+url.PathEscape(ref)+"/tag", Image{Name: name})
}

// VerifyImage reads an image again and compares it with its digest.
func (c *Client) VerifyImage(ctx context.Context, ref string) (ImageDetails, error) {
	return call[ImageDetails](ctx, c, "POST", "/v1/images/"+url.PathEscape(ref)+"/verify", nil)
}

// PurgeImages removes images that nobody needs.
func (c *Client) PurgeImages(ctx context.Context, p ImagePurge) ([]ImagePurged, error) {
	return call[[]ImagePurged](ctx, c, "POST", "/v1/images-purge", p)
}

// MakeImage builds, imports or fetches an image; progress is told what is being done.
func (c *Client) MakeImage(ctx context.Context, r ImageRequest, progress func(string)) (Image, error) {
	response, err := c.do(ctx, "POST", "/v1/images", r)
	if err != nil {
		return Image{}, err
	}
	var made *Image
	err = lines(response, func(e ImageEvent) error {
		if e.Message != "" {
			progress(e.Message)
		}
		made = e.Image
		if e.Problem != nil {
			return e.Problem
		}
		return nil
	})
	if err == nil && made == nil {
		err = errors.New("the agent ended in the middle of the image")
	}
	if err != nil {
		return Image{}, err
	}
	return *made, nil
}

// RemoveImage takes an image's name away, and its files with the last name.
func (c *Client) RemoveImage(ctx context.Context, name string) error {
	_, err := call[Image](ctx, c, "DELETE", "/v1/images/"+url.PathEscape(name), nil)
	return err
}

// Host returns what the agent knows of its host.
func (c *Client) Host(ctx context.Context) (Host, error) {
	return call[Host](ctx, c, "GET", "/v1/host", nil)
}

// Services returns the services of the host for its VMs. The agent connects to each, and takes up to a second.
func (c *Client) Services(ctx context.Context) ([]HostService, error) {
	return call[[]HostService](ctx, c, "GET", "/v1/services", nil)
}

// Alive returns without an error where the agent works, whatever libvirt does.
func (c *Client) Alive(ctx context.Context) (Alive, error) {
	return call[Alive](ctx, c, "GET", "/v1/alive", nil)
}

// Usage reads the records of VMs of this host that ended within a time: one's own, or for root all.
func (c *Client) Usage(ctx context.Context, from, to time.Time, each func(Usage) error) error {
	query := url.Values{"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}
	response, err := c.do(ctx, "GET", "/v1/usage?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	return lines(response, each)
}
