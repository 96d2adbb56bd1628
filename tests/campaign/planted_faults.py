"""Cases that fail, die or hang, for the tests of the campaign itself."""

from campaign.test_campaign import CHECK

__all__ = ["CHECK"]
