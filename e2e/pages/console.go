package main

import (
	"errors"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// console is a VM on a real host, from the sign-in to its end: somebody types into its console, and leaves it by the
// keyboard.
func (t *test) console() (err error) {
	host, err := t.server.realHost(t.browser.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	ctx, end, err := t.browser.strangersTab()
	if err != nil {
		return err
	}
	defer end()
	err = chromedp.Do(ctx, looks[0].step(), t.browser.byIssuer(), t.browser.listening(),
		t.browser.visit("/vms/new"), set("#project", "real"), set("#shape", "tiny"), write("#vmname", "typed"),
		write("#image", "micro"), press("#create .go"), text("h1", "typed"), text("#now .state", "running"),
		press("#console"), text("h1", "Console of typed"), text("#link", "Connected"),
		text("#terminal .xterm-rows", "#"), // the guest's prompt
		// in a colour that is in no sheet
		focus("#terminal textarea"), key(`printf '\033[38;2;200;90;90m%s by hand\033[m\n' $((6 * 7))`+kb.Enter),
		text("#terminal .xterm-rows", "42 by hand"))
	if err != nil {
		return err
	}
	var all []error
	for _, l := range looks {
		all = append(all, chromedp.Do(ctx, l.step()), t.holds(ctx, "vm-console", l))
	}
	return errors.Join(append(all, chromedp.Do(ctx, looks[0].step(),
		js(`document.querySelector("#terminal textarea").focus()`),
		chromedp.KeyEvent("]", chromedp.KeyModifiers(chromedp.ModifierCtrl)),
		until("the keyboard is the page's", `document.activeElement.id === "leave"`), press("#leave"),
		text("h1", "typed"), press("#delete"), press(".sure"), text("h1", "VMs")))...)
}
