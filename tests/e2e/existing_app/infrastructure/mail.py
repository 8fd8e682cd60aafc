"""The shop's mails, which this example only keeps."""

sent_mails: list[str] = []


def send_mail(text: str) -> None:
    """Send a mail."""
    sent_mails.append(text)
